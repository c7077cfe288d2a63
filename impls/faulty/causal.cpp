// SPDX-License-Identifier: Apache-2.0
// Faults of the causal rule and of the alignment: where a query stands and what is its future.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "causal";

template <class S>
struct CausalStrict : Stepwise<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    if (this->problem.base == ATTEST_BASE_CAUSAL) return k.position < q.position;
    return Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(CausalStrict, {.id = "causal_strict",
                            .kind = kKind,
                            .sentence = "a causal row does not see its own key"});

template <class S>
struct CausalPlusOne : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    if (this->problem.base == ATTEST_BASE_CAUSAL) return k.position <= q.position + 1;
    return Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(CausalPlusOne, {.id = "causal_plus_one",
                             .kind = kKind,
                             .sentence = "a causal row sees one key of its future"});

template <class S>
struct CausalFlagIgnored : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    return this->problem.base == ATTEST_BASE_CAUSAL || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(CausalFlagIgnored, {.id = "causal_flag_ignored",
                                 .kind = kKind,
                                 .sentence = "base=causal is done as base=full",
                                 .reference = "jax-ml/jax#19237"});

template <class S>
struct AlwaysCausal : Stepwise<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    if (this->problem.base == ATTEST_BASE_FULL) return k.position <= q.position;
    return Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(AlwaysCausal, {.id = "always_causal",
                            .kind = kKind,
                            .sentence = "base=full is done as base=causal",
                            .reference = "huggingface/transformers#39707"});

template <class S>
struct AlwaysCausalSquare : Stepwise<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool guessed = this->problem.base == ATTEST_BASE_FULL && !this->problem.mask &&
                         this->sizes.q_len == this->sizes.kv_len && this->sizes.q_len > 64;
    return Stepwise<S>::base_allows(q, k) && (!guessed || k.position <= q.position);
  }
};
ATTEST_PLANT(AlwaysCausalSquare,
             {.id = "always_causal_square",
              .kind = kKind,
              .sentence = "without a mask, long square attention is taken for causal"});

template <class S>
struct CausalOnlyWithMask : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool lost =
        this->problem.base == ATTEST_BASE_CAUSAL && !this->problem.mask && !this->problem.bias;
    return lost || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(CausalOnlyWithMask,
             {.id = "causal_only_with_mask",
              .kind = kKind,
              .sentence = "base=causal is obeyed only where there is a mask or a bias too",
              .reference = "facebookresearch/xformers#103"});

template <class S>
struct CausalIgnoredInDecode : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool lost = this->problem.base == ATTEST_BASE_CAUSAL && this->sizes.q_len == 1;
    return lost || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(CausalIgnoredInDecode,
             {.id = "causal_ignored_in_decode",
              .kind = kKind,
              .sentence = "a single query row is never causal, wherever it stands"});

template <class S>
struct ChunkPrefillNotCausal : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const std::int64_t start = q.sequence->offset;
    return (start > 0 && k.position >= start) || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(ChunkPrefillNotCausal,
             {.id = "chunk_prefill_not_causal",
              .kind = kKind,
              .sentence = "the keys of the query's own chunk are not masked causally"});

template <class S>
struct AllTrueMaskElided : Stepwise<S> {
  void run() override {
    all_true = this->problem.mask != nullptr;
    const TensorView<const std::uint8_t> mask(this->problem.mask);
    for (std::int64_t b = 0; mask && b < mask.extent(0); ++b)
      for (std::int64_t h = 0; h < mask.extent(1); ++h)
        for (std::int64_t i = 0; i < mask.extent(2); ++i)
          for (std::int64_t j = 0; j < mask.extent(3); ++j)
            all_true = all_true && mask(b, h, i, j) != 0;
    Stepwise<S>::run();
  }
  bool base_allows(const Query& q, const Key& k) const override {
    return Stepwise<S>::base_allows(q, k) && (!all_true || k.position <= q.position);
  }
  bool all_true = false;
};
ATTEST_PLANT(AllTrueMaskElided, {.id = "all_true_mask_elided_to_causal",
                                 .kind = kKind,
                                 .sentence = "a mask that hides nothing is replaced by base=causal",
                                 .reference = "huggingface/transformers#30311"});

template <class S>
struct CausalTopLeft : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return this->problem.align == ATTEST_ALIGN_BOTTOM_RIGHT ? 0 : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(CausalTopLeft, {.id = "causal_top_left",
                             .kind = kKind,
                             .sentence = "bottom-right alignment is done top-left",
                             .reference = "NVIDIA/cutlass#2336"});

template <class S>
struct TopLeftBottomRight : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return this->problem.align == ATTEST_ALIGN_TOP_LEFT ? at.keys() - at.queries()
                                                        : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(TopLeftBottomRight, {.id = "top_left_as_bottom_right",
                                  .kind = kKind,
                                  .sentence = "top-left alignment is done bottom-right"});

template <class S>
struct OffsetFromCapacity : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return this->problem.align == ATTEST_ALIGN_BOTTOM_RIGHT ? this->sizes.kv_len - this->sizes.q_len
                                                            : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(OffsetFromCapacity,
             {.id = "offset_from_capacity",
              .kind = kKind,
              .sentence = "bottom-right alignment takes the tensors' lengths, not the sequence's"});

template <class S>
struct QStartFromKvLen : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    const bool longer = this->problem.align == ATTEST_ALIGN_BOTTOM_RIGHT && at.queries() > 1;
    return longer && at.keys() > at.queries() ? at.keys() - 1 : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(QStartFromKvLen, {.id = "q_start_from_kv_len",
                               .kind = kKind,
                               .sentence = "the first of several query rows is put at the last key",
                               .reference = "NVIDIA/TensorRT-LLM#10102"});

template <class S>
struct NegativeOffsetClamped : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return std::max<std::int64_t>(0, Stepwise<S>::offset(at));
  }
};
ATTEST_PLANT(NegativeOffsetClamped,
             {.id = "negative_offset_clamped",
              .kind = kKind,
              .sentence = "where there are more queries than keys, the first stands at key 0"});

template <class S>
struct OffsetIgnoresCache : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return this->problem.align == ATTEST_ALIGN_Q_OFFSET ? 0 : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(OffsetIgnoresCache, {.id = "offset_ignores_cache",
                                  .kind = kKind,
                                  .sentence = "q_offset is taken for 0",
                                  .reference = "onnx/onnx#7297"});

template <class S>
struct QOffsetFirstEntry : Stepwise<S> {
  std::int64_t offset(const Sequence& at) const override {
    return this->problem.align == ATTEST_ALIGN_Q_OFFSET ? this->entry(this->problem.q_offset, 0, 0)
                                                        : Stepwise<S>::offset(at);
  }
};
ATTEST_PLANT(QOffsetFirstEntry, {.id = "q_offset_first_entry",
                                 .kind = kKind,
                                 .sentence = "every sequence takes the first entry of q_offset"});

template <class S>
struct PrefixPlusOne : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool one_more =
        this->problem.base == ATTEST_BASE_PREFIX && k.position == q.sequence->prefix;
    return one_more || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(PrefixPlusOne, {.id = "prefix_plus_one",
                             .kind = kKind,
                             .sentence = "the prefix is one key longer (<= for <)"});

template <class S>
struct PrefixIgnored : Stepwise<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    return Stepwise<S>::base_allows(q, k) &&
           (this->problem.base == ATTEST_BASE_FULL || k.position <= q.position);
  }
};
ATTEST_PLANT(PrefixIgnored, {.id = "prefix_ignored",
                             .kind = kKind,
                             .sentence = "base=prefix is done as base=causal"});

template <class S>
struct PrefixFirstEntry : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    at.prefix = this->entry(this->problem.prefix_len, 0, 0);
    return at;
  }
};
ATTEST_PLANT(PrefixFirstEntry, {.id = "prefix_first_entry",
                                .kind = kKind,
                                .sentence = "every sequence takes the first entry of prefix_len"});

template <class S>
struct PrefixHiddenFromEarly : Stepwise<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    if (this->problem.base == ATTEST_BASE_PREFIX && q.position < 0) return false;
    return Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(PrefixHiddenFromEarly,
             {.id = "prefix_hidden_before_key_0",
              .kind = kKind,
              .sentence = "queries at negative positions do not see the prefix"});

}  // namespace
}  // namespace attest::faulty
