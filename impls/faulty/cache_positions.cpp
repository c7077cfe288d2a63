// SPDX-License-Identifier: Apache-2.0
// Faults of decoding in where queries and keys stand, and in the tensors over pairs of them.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache positions";

template <class S>
struct CacheQueryFromZero : StepwiseDecode<S> {
  Query query(const Sequence& at, std::int64_t h, std::int64_t row) const override {
    return {&at, at.b, h, row, row};
  }
};
ATTEST_PLANT(CacheQueryFromZero,
             {.id = "decode_offset_ignores_cache",
              .kind = kKind,
              .sentence = "queries stand at their rows in the call, not behind the cache",
              .reference = "onnx/onnx#7297",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheChunkNotCausal : StepwiseDecode<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    return k.position >= q.sequence->offset || StepwiseDecode<S>::base_allows(q, k);
  }
  Span tile_keys(const Query& first, const Query& last) const override {
    return {StepwiseDecode<S>::tile_keys(first, last).begin, first.sequence->k1};
  }
};
ATTEST_PLANT(CacheChunkNotCausal, {.id = "decode_chunk_not_causal",
                                   .kind = kKind,
                                   .sentence = "causal calls do not mask inside the chunk",
                                   .base = "decode",
                                   .declares = kDecode});

template <class S>
struct CacheWindowIgnored : StepwiseDecode<S> {
  bool band_allows(const Query&, const Key&) const override { return true; }
  Span tile_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->k1};
  }
};
ATTEST_PLANT(CacheWindowIgnored, {.id = "decode_window_ignored",
                                  .kind = kKind,
                                  .sentence = "windows are accepted and ignored",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheWindowByRow : StepwiseDecode<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    Query local = q;
    local.position = q.row;
    return StepwiseDecode<S>::band_allows(local, k);
  }
  Span tile_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->k1};
  }
};
ATTEST_PLANT(
    CacheWindowByRow,
    {.id = "decode_window_from_chunk_row",
     .kind = kKind,
     .sentence = "the window is measured from the row in the call: nothing cached falls out of it",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheWindowOfFirst : StepwiseDecode<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    Query first = q;
    first.position = q.sequence->offset;
    return StepwiseDecode<S>::band_allows(first, k);
  }
  Span tile_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->k1};
  }
};
ATTEST_PLANT(CacheWindowOfFirst, {.id = "decode_window_of_first_row",
                                  .kind = kKind,
                                  .sentence = "all rows of a chunk have the window of its first",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheAlibiByRow : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    Query local = q;
    local.position = q.row;
    return StepwiseDecode<S>::alibi(local, k);
  }
};
ATTEST_PLANT(CacheAlibiByRow, {.id = "decode_alibi_by_chunk_row",
                               .kind = kKind,
                               .sentence = "ALiBi takes queries to stand at their rows in the call",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CacheAlibiOfNew : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    return k.position < q.sequence->offset ? C{0} : StepwiseDecode<S>::alibi(q, k);
  }
};
ATTEST_PLANT(CacheAlibiOfNew, {.id = "decode_alibi_of_new_keys_alone",
                               .kind = kKind,
                               .sentence = "cached keys get no ALiBi",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CacheMaskOfFirst : StepwiseDecode<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    Query first = q;
    first.b = 0;
    return StepwiseDecode<S>::mask_allows(first, k);
  }
};
ATTEST_PLANT(CacheMaskOfFirst, {.id = "decode_mask_of_sequence_0",
                                .kind = kKind,
                                .sentence = "every sequence has the mask of sequence 0",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheMaskByPosition : StepwiseDecode<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    Query other = q;
    other.row = std::min(q.position, this->sizes.q_len - 1);
    return StepwiseDecode<S>::mask_allows(other, k);
  }
};
ATTEST_PLANT(CacheMaskByPosition,
             {.id = "decode_mask_row_by_position",
              .kind = kKind,
              .sentence = "the mask's row is the query's position, cut to those that there are",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheMaskBySlot : StepwiseDecode<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    const Slot slot = this->slot(*q.sequence, k.position);
    return StepwiseDecode<S>::mask_allows(q, {slot.row, k.position});
  }
};
ATTEST_PLANT(CacheMaskBySlot,
             {.id = "decode_mask_key_by_slot",
              .kind = kKind,
              .sentence = "the mask's key axis is taken for rows of the cache, not positions",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheMaskOfNew : StepwiseDecode<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    return k.position < q.sequence->offset || StepwiseDecode<S>::mask_allows(q, k);
  }
};
ATTEST_PLANT(CacheMaskOfNew, {.id = "decode_mask_of_new_keys_alone",
                              .kind = kKind,
                              .sentence = "cached keys are seen whatever the mask says",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheBiasBySlot : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    const Slot slot = this->slot(*q.sequence, k.position);
    return StepwiseDecode<S>::bias(q, {slot.row, k.position});
  }
};
ATTEST_PLANT(CacheBiasBySlot,
             {.id = "decode_bias_key_by_slot",
              .kind = kKind,
              .sentence = "the bias's key axis is taken for rows of the cache, not positions",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheBiasOfNew : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    return k.position < q.sequence->offset ? C{0} : StepwiseDecode<S>::bias(q, k);
  }
};
ATTEST_PLANT(CacheBiasOfNew, {.id = "decode_bias_of_new_keys_alone",
                              .kind = kKind,
                              .sentence = "cached keys get no bias",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheBiasFromEnd : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    const std::int64_t columns = this->problem.bias->shape[3];
    return StepwiseDecode<S>::bias(
        q, {std::max<std::int64_t>(0, columns - this->end(*q.sequence)) + k.row, k.position});
  }
};
ATTEST_PLANT(CacheBiasFromEnd,
             {.id = "decode_bias_from_the_end",
              .kind = kKind,
              .sentence = "the bias's key axis is taken to end where the sequence does",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheBlocksByPosition : StepwiseDecode<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    Query other = q;
    other.row = std::min(q.position, this->sizes.q_len - 1);
    return StepwiseDecode<S>::blocks_allow(other, k);
  }
};
ATTEST_PLANT(
    CacheBlocksByPosition,
    {.id = "decode_blocks_row_by_position",
     .kind = kKind,
     .sentence = "the row of a block is that of the query's position, cut to those that there are",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CachePrefixBehind : StepwiseDecode<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool prefix = this->problem.base == ATTEST_BASE_PREFIX;
    const std::int64_t from = prefix ? q.sequence->offset : 0;
    return (prefix && k.position < from + q.sequence->prefix) || k.position <= q.position ||
           this->problem.base == ATTEST_BASE_FULL;
  }
  Span tile_keys(const Query& first, const Query& last) const override {
    return {StepwiseDecode<S>::tile_keys(first, last).begin, first.sequence->k1};
  }
};
ATTEST_PLANT(CachePrefixBehind, {.id = "decode_prefix_behind_cache",
                                 .kind = kKind,
                                 .sentence = "the prefix is counted from the first new key",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheGlobalsOfChunk : StepwiseDecode<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    return q.row < this->problem.global_tokens || StepwiseDecode<S>::band_allows(q, k);
  }
};
ATTEST_PLANT(CacheGlobalsOfChunk,
             {.id = "decode_globals_of_chunk",
              .kind = kKind,
              .sentence = "the first rows of every call are taken for global queries",
              .base = "decode",
              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
