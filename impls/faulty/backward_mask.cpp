// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in which pairs count.
#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kMask = "backward mask";

template <class S>
struct CausalLost : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  bool visible_in_backward(const Query& q, const Key& k) const override {
    if (this->problem.base != ATTEST_BASE_CAUSAL) return this->visible(q, k);
    return this->band_allows(q, k) && this->mask_allows(q, k) && this->blocks_allow(q, k);
  }
  Span backward_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->keys()};
  }
};
ATTEST_PLANT(CausalLost, {.id = "causal_lost_in_backward",
                          .kind = kMask,
                          .sentence = "backward forms P without the causal mask",
                          .reference = "triton-lang/triton#4541",
                          .base = "backward",
                          .declares = kBackward});

template <class S>
struct WindowIgnored : StepwiseBackward<S> {
  bool visible_in_backward(const Query& q, const Key& k) const override {
    return this->base_allows(q, k) && this->mask_allows(q, k) && this->blocks_allow(q, k);
  }
  Span backward_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->keys()};
  }
};
ATTEST_PLANT(WindowIgnored, {.id = "window_ignored_in_backward",
                             .kind = kMask,
                             .sentence = "the window was added to forward alone",
                             .base = "backward",
                             .declares = kBackward});

template <class S>
struct GlobalIgnored : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  bool visible_in_backward(const Query& q, const Key& k) const override {
    const bool within =
        (this->problem.window_left < 0 || q.position - k.position <= this->problem.window_left) &&
        (this->problem.window_right < 0 || k.position - q.position <= this->problem.window_right);
    return within && this->visible(q, k);
  }
};
ATTEST_PLANT(GlobalIgnored,
             {.id = "global_tokens_ignored_in_backward",
              .kind = kMask,
              .sentence = "backward walks the window's blocks alone and misses global tokens",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct MaskIgnored : StepwiseBackward<S> {
  bool visible_in_backward(const Query& q, const Key& k) const override {
    return this->base_allows(q, k) && this->band_allows(q, k) && this->blocks_allow(q, k);
  }
};
ATTEST_PLANT(MaskIgnored, {.id = "mask_ignored_in_backward",
                           .kind = kMask,
                           .sentence = "the mask was not saved for backward",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct BlocksIgnored : StepwiseBackward<S> {
  bool visible_in_backward(const Query& q, const Key& k) const override {
    return this->base_allows(q, k) && this->band_allows(q, k) && this->mask_allows(q, k);
  }
};
ATTEST_PLANT(BlocksIgnored, {.id = "blocks_ignored_in_backward",
                             .kind = kMask,
                             .sentence = "backward is dense, its forward block-sparse",
                             .base = "backward",
                             .declares = kBackward});

template <class S>
struct BackwardMaskTransposed : StepwiseBackward<S> {
  // dK walks the queries of a key, and takes the [Lq, Lk] of the mask for [Lk, Lq].
  bool visible_in_backward(const Query& q, const Key& k) const override {
    const std::int64_t flat = k.row * this->sizes.q_len + q.row;
    Query other = q;
    other.row = flat / this->sizes.kv_len;
    return this->base_allows(q, k) && this->band_allows(q, k) && this->blocks_allow(q, k) &&
           this->mask_allows(other, {flat % this->sizes.kv_len, k.position});
  }
};
ATTEST_PLANT(BackwardMaskTransposed, {.id = "mask_transposed_in_backward",
                                      .kind = kMask,
                                      .sentence = "the mask of S is read for that of its transpose",
                                      .base = "backward",
                                      .declares = kBackward});

template <class S>
struct BiasInfNaN : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void write_d_bias(std::int64_t b, std::int64_t h, const std::vector<C>& sums) const override {
    const std::int64_t* const shape = this->problem.bias->shape;
    std::vector<C> shown = sums;
    for (std::int64_t i = 0; i < shape[2]; ++i)
      for (std::int64_t j = 0; j < shape[3]; ++j) {
        const C bias = widen(TensorView<const S>(this->problem.bias)(b, h, i, j));
        if (bias == this->kNone) shown[static_cast<std::size_t>(i * shape[3] + j)] = bias * 0;
      }
    StepwiseBackward<S>::write_d_bias(b, h, shown);
  }
};
ATTEST_PLANT(BiasInfNaN, {.id = "bias_neg_inf_gradient_nan",
                          .kind = kMask,
                          .sentence = "a gradient of 0 is multiplied by the -inf of its bias",
                          .base = "backward",
                          .declares = kBackward});

template <class S>
struct BackwardPrefixIgnored : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    at.prefix = 0;
    return at;
  }
};
ATTEST_PLANT(BackwardPrefixIgnored, {.id = "prefix_ignored_in_backward",
                                     .kind = kMask,
                                     .sentence = "backward of prefix attention is plain causal",
                                     .base = "backward",
                                     .declares = kBackward});

template <class S>
struct LeftPadIgnored : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.left_pad_k) at.k0 = 0;
    return at;
  }
};
ATTEST_PLANT(LeftPadIgnored, {.id = "left_pad_ignored_in_backward",
                              .kind = kMask,
                              .sentence = "backward sees the keys of the left pad",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct BackwardSeqlensQIgnored : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.seqlens_q) at.q1 = this->sizes.q_len;
    return at;
  }
};
ATTEST_PLANT(BackwardSeqlensQIgnored, {.id = "seqlens_q_ignored_in_backward",
                                       .kind = kMask,
                                       .sentence = "query rows past the end add to dK and dV",
                                       .base = "backward",
                                       .declares = kBackward});

template <class S>
struct BackwardSegmentsLeak : StepwiseBackward<S> {
  // All segments are one: the first takes everything, the others have nothing left.
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (!this->problem.cu_seqlens_q) return at;
    const Sequence last = this->sequence(this->sizes.sequences - 1);
    at.q0 = n == 0 ? 0 : last.q1;
    at.k0 = n == 0 ? 0 : last.k1;
    at.q1 = last.q1;
    at.k1 = last.k1;
    return at;
  }
};
ATTEST_PLANT(BackwardSegmentsLeak, {.id = "segments_leak_in_backward",
                                    .kind = kMask,
                                    .sentence = "backward takes a packed batch for one sequence",
                                    .base = "backward",
                                    .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
