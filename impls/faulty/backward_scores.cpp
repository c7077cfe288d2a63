// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in pairs: which of them count, and what a score passes on.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kScores = "backward scores";
constexpr const char* kMask = "backward mask";
constexpr const char* kDropout = "backward dropout";
constexpr const char* kPosition = "backward positions";

template <class S>
struct DkScaleMissing : StepwiseBackward<S> {
  typename Stepwise<S>::C d_k_factor() const override { return 1; }
};
ATTEST_PLANT(DkScaleMissing,
             {.id = "dk_scale_missing",
              .kind = kScores,
              .sentence = "dK is not scaled, as if the scale had been folded into q already",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqScaleMissing : StepwiseBackward<S> {
  typename Stepwise<S>::C d_q_factor() const override { return 1; }
};
ATTEST_PLANT(DqScaleMissing,
             {.id = "dq_scale_missing",
              .kind = kScores,
              .sentence = "dQ is not scaled, as if the scale had been folded into k already",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqScaleDefault : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_q_factor() const override {
    return static_cast<C>(1 / std::sqrt(static_cast<double>(this->sizes.dim)));
  }
};
ATTEST_PLANT(DqScaleDefault, {.id = "user_scale_ignored_in_dq",
                              .kind = kScores,
                              .sentence = "dQ is scaled by 1/sqrt(D), whatever scale is given",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct SoftcapDerivativeMissing : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>&, const Key&, const C*, C d_z) const override {
    return d_z;
  }
};
ATTEST_PLANT(SoftcapDerivativeMissing, {.id = "softcap_derivative_missing",
                                        .kind = kScores,
                                        .sentence = "the softcap passes dS on as it is",
                                        .base = "backward",
                                        .declares = kBackward});

template <class S>
struct SoftcapTwice : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>& row, const Key& k, const C* key, C d_z) const override {
    C a = this->scaled(this->dot(row.q.data(), key, this->sizes.dim));
    if (this->problem.alibi && this->problem.alibi_inside_softcap) a += this->alibi(row.query, k);
    const C t = std::tanh(this->capped(a) / static_cast<C>(this->problem.softcap));
    return d_z * (1 - t * t);
  }
};
ATTEST_PLANT(SoftcapTwice,
             {.id = "softcap_derivative_of_capped",
              .kind = kScores,
              .sentence = "1 - tanh^2 is taken at the capped score, which the tile holds by then",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SoftcapWithoutAlibi : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>& row, const Key&, const C* key, C d_z) const override {
    const C a = this->scaled(this->dot(row.q.data(), key, this->sizes.dim));
    const C t = std::tanh(a / static_cast<C>(this->problem.softcap));
    return d_z * (1 - t * t);
  }
};
ATTEST_PLANT(SoftcapWithoutAlibi,
             {.id = "softcap_derivative_without_alibi",
              .kind = kScores,
              .sentence = "the derivative of the softcap forgets the ALiBi term inside it",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SoftcapOnBias : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) pair.d_z = pair.d_a;
    return seen;
  }
};
ATTEST_PLANT(SoftcapOnBias,
             {.id = "softcap_derivative_on_bias",
              .kind = kScores,
              .sentence = "dBias is written after the softcap's derivative, which bias never met",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DBiasScaled : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_bias(C& sum, C d_z) const override {
    sum += d_z * static_cast<C>(this->problem.scale);
  }
};
ATTEST_PLANT(DBiasScaled, {.id = "d_bias_scaled",
                           .kind = kScores,
                           .sentence = "dBias is scaled like dS, though bias is added after scale",
                           .base = "backward",
                           .declares = kBackward});

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
struct DropoutMaskDiffers : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C dropout_factor(const Query& q, const Key& k) const override {
    Query other = q;  // the random numbers of backward begin one row later
    if (q.row + 1 < q.sequence->q1) ++other.row;
    return StepwiseBackward<S>::dropout_factor(other, k);
  }
};
ATTEST_PLANT(DropoutMaskDiffers, {.id = "dropout_mask_differs",
                                  .kind = kDropout,
                                  .sentence = "backward drops other pairs than forward",
                                  .reference = "pytorch/pytorch#197563",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct DropoutIgnored : StepwiseBackward<S> {
  typename Stepwise<S>::C dropout_factor(const Query&, const Key&) const override { return 1; }
};
ATTEST_PLANT(DropoutIgnored, {.id = "dropout_ignored_in_backward",
                              .kind = kDropout,
                              .sentence = "backward drops nothing, as if it ran for inference",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct DvUndropped : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) pair.weight = this->round_p(pair.p);
    return seen;
  }
};
ATTEST_PLANT(DvUndropped, {.id = "dv_from_undropped_p",
                           .kind = kDropout,
                           .sentence = "dV takes P, not what dropout left of it",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DpNotScaled : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_weight(const GradientRow<C>& row, C kept, const C* value) const override {
    return StepwiseBackward<S>::d_weight(row, kept == 0 ? C{0} : C{1}, value);
  }
};
ATTEST_PLANT(DpNotScaled, {.id = "dp_without_dropout_factor",
                           .kind = kDropout,
                           .sentence = "dP of kept pairs lacks 1/(1 - p)",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DzFromDroppedP : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) {
      pair.d_z *= pair.kept;
      pair.d_a *= pair.kept;
      pair.d_s = this->round_d_s(pair.d_a);
    }
    return seen;
  }
};
ATTEST_PLANT(DzFromDroppedP,
             {.id = "ds_from_dropped_p",
              .kind = kDropout,
              .sentence = "one P serves dV and dS: that after dropout, so that delta is cut too",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DkTurnedForward : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_k(const Key& k, C* d_k) const override { this->rotate(d_k, k.position); }
};
ATTEST_PLANT(DkTurnedForward, {.id = "dk_turned_forward",
                               .kind = kPosition,
                               .sentence = "dK is rotated by +theta, with forward's own routine",
                               .base = "backward",
                               .declares = kBackward});

template <class S>
struct DqNotTurned : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_q(const Query&, C*) const override {}
};
ATTEST_PLANT(DqNotTurned, {.id = "dq_not_turned_back",
                           .kind = kPosition,
                           .sentence = "dQ is that of the rotated q",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DkTurnedByRow : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_k(const Key& k, C* d_k) const override { this->turn_back(d_k, k.row); }
};
ATTEST_PLANT(DkTurnedByRow,
             {.id = "dk_turned_by_row",
              .kind = kPosition,
              .sentence = "dK is turned by its row in the tensor: pads and segments count in",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqTurnedWithoutOffset : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_q(const Query& q, C* d_q) const override {
    this->turn_back(d_q, q.position - q.sequence->offset);
  }
};
ATTEST_PLANT(DqTurnedWithoutOffset,
             {.id = "dq_turned_without_offset",
              .kind = kPosition,
              .sentence = "dQ is turned back from its place among queries, not among keys",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct TurnedInHalves : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_back(C* row, std::int64_t position) const override {
    const std::int64_t half = this->problem.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      const C x = row[t], y = row[t + half];
      row[t] = x * cosine + y * sine;
      row[t + half] = y * cosine - x * sine;
    }
  }
};
ATTEST_PLANT(TurnedInHalves,
             {.id = "rope_pairs_half_in_backward",
              .kind = kPosition,
              .sentence = "backward pairs channels (t, t + R/2), interleaved or not",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeOfDistance : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    if (this->problem.alibi != ATTEST_ALIBI_SIGNED)
      return StepwiseBackward<S>::alibi_distance(q, k);
    return -static_cast<C>(std::abs(k.position - q.position));
  }
};
ATTEST_PLANT(SlopeOfDistance,
             {.id = "d_slope_of_absolute_distance",
              .kind = kPosition,
              .sentence = "dSlope of signed ALiBi sums over -|distance|: right under causal alone",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeWithoutOffset : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    Query unaligned = q;
    unaligned.position -= q.sequence->offset;
    return StepwiseBackward<S>::alibi_distance(unaligned, k);
  }
};
ATTEST_PLANT(SlopeWithoutOffset,
             {.id = "d_slope_ignores_offset",
              .kind = kPosition,
              .sentence = "dSlope takes distances from query rows, not positions",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeInsideCap : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_slope(GradientRow<C>& row, const Pairs<C>& pairs,
                   const Block<C>& block) const override {
    Pairs<C> outside = pairs;
    for (Pair<C>& pair : outside) pair.d_a = pair.d_z;
    StepwiseBackward<S>::add_d_slope(row, outside, block);
  }
};
ATTEST_PLANT(SlopeInsideCap,
             {.id = "d_slope_misses_softcap",
              .kind = kPosition,
              .sentence = "dSlope of ALiBi inside the softcap is taken as if it stood outside",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeSigned : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    const C distance = StepwiseBackward<S>::alibi_distance(q, k);
    return this->problem.alibi == ATTEST_ALIBI_ABSOLUTE ? -distance : distance;
  }
};
ATTEST_PLANT(SlopeSigned, {.id = "d_slope_sign_flipped",
                           .kind = kPosition,
                           .sentence = "dSlope forgets that ALiBi subtracts the distance",
                           .base = "backward",
                           .declares = kBackward});

/// What backward takes for the ranges and positions of a sequence.
template <class S>
struct QOffsetIgnored : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.align == ATTEST_ALIGN_Q_OFFSET) at.offset = at.keys() - at.queries();
    return at;
  }
};
ATTEST_PLANT(QOffsetIgnored,
             {.id = "q_offset_ignored_in_backward",
              .kind = kPosition,
              .sentence = "backward places queries bottom right, whatever offset forward was given",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct TopLeftInBackward : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.align == ATTEST_ALIGN_BOTTOM_RIGHT) at.offset = 0;
    return at;
  }
};
ATTEST_PLANT(TopLeftInBackward, {.id = "top_left_in_backward",
                                 .kind = kPosition,
                                 .sentence = "forward aligns bottom right, backward top left",
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
