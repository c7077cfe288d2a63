// SPDX-License-Identifier: Apache-2.0
// Faults of caches in how many keys a sequence has.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/decode_longer.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache lengths";

constexpr const char* kSwitchesAt100 =
    "features=all forward=none cache=contiguous,ring,paged cache_keys=raw,rotated splits "
    "switch=100 "
    "precision=mma_f32acc deterministic batch_invariant thread_invariant masked_nan_safe";

template <class S>
struct CacheLenOfFirst : StepwiseDecode<S> {
  std::int64_t cache_len(std::int64_t) const override { return this->cached(0); }
};
ATTEST_PLANT(CacheLenOfFirst,
             {.id = "cache_len_of_first",
              .kind = kKind,
              .sentence = "every sequence is taken to have as many cached rows as sequence 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLenMax : StepwiseDecode<S> {
  std::int64_t cache_len(std::int64_t) const override {
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < this->sizes.batch; ++b)
      longest = std::max(longest, this->cached(b));
    return longest;
  }
};
ATTEST_PLANT(CacheLenMax,
             {.id = "cache_len_of_longest",
              .kind = kKind,
              .sentence = "every sequence is taken to have as many cached rows as the longest",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLenTotal : StepwiseDecode<S> {
  std::int64_t cache_len(std::int64_t b) const override {
    return std::max<std::int64_t>(0, this->cached(b) - this->new_rows(b));
  }
};
ATTEST_PLANT(CacheLenTotal, {.id = "cache_len_taken_as_total",
                             .kind = kKind,
                             .sentence = "cache_len is taken to count the new rows too",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheStaleRow : DecodeLonger<S> {
  std::int64_t extra(const Sequence& at) const override {
    return this->end(at) < this->capacity() && at.queries() > 0 ? 1 : 0;
  }
};
ATTEST_PLANT(CacheStaleRow, {.id = "stale_slot_read",
                             .kind = kKind,
                             .sentence = "one row behind the last key is attended to",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheCapacityAttended : DecodeLonger<S> {
  std::int64_t extra(const Sequence& at) const override {
    return this->ring() || this->paged() ? 0 : this->capacity() - this->end(at);
  }
};
ATTEST_PLANT(CacheCapacityAttended,
             {.id = "cache_capacity_attended",
              .kind = kKind,
              .sentence = "every row of a contiguous cache is attended to, filled or not",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLongestAttended : DecodeLonger<S> {
  std::int64_t extra(const Sequence& at) const override {
    return std::min(this->sizes.kv_len, this->capacity()) - this->end(at);
  }
};
ATTEST_PLANT(CacheLongestAttended,
             {.id = "decode_batch_interference",
              .kind = kKind,
              .sentence = "every sequence is attended to the length of the longest",
              .reference = "Dao-AILab/flash-attention#1570",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheCachedOnly : StepwiseDecode<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = StepwiseDecode<S>::sequence(n);
    at.k1 = at.offset;
    return at;
  }
  Span tile_keys(const Query& first, const Query& last) const override {
    const Span span = StepwiseDecode<S>::tile_keys(first, last);
    return {span.begin, std::min(span.end, first.sequence->offset)};
  }
};
ATTEST_PLANT(CacheCachedOnly, {.id = "new_rows_not_attended",
                               .kind = kKind,
                               .sentence = "queries attend to the cached keys alone",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CacheNewOnly : StepwiseDecode<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    const Span span = StepwiseDecode<S>::tile_keys(first, last);
    return {std::max(span.begin, first.sequence->offset), span.end};
  }
};
ATTEST_PLANT(CacheNewOnly, {.id = "cached_rows_not_attended",
                            .kind = kKind,
                            .sentence = "queries attend to the new keys alone",
                            .base = "decode",
                            .declares = kDecode});

template <class S>
struct CacheLoopByQueries : StepwiseDecode<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    const Span span = StepwiseDecode<S>::tile_keys(first, last);
    return {span.begin, std::min(span.end, this->sizes.q_len)};
  }
};
ATTEST_PLANT(CacheLoopByQueries,
             {.id = "decode_kv_loop_bound_from_q_len",
              .kind = kKind,
              .sentence = "the loop over keys ends after as many as there are queries",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLengthsIgnored : StepwiseDecode<S> {
  std::int64_t new_rows(std::int64_t) const override { return this->sizes.q_len; }
  bool fits(const Sequence&) const override { return true; }
};
ATTEST_PLANT(
    CacheLengthsIgnored,
    {.id = "padding_accepted_and_ignored_in_decode",
     .kind = kKind,
     .sentence = "seqlens_q is accepted and ignored: padding rows are appended and attended",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CachePaddingUnwritten : StepwiseDecode<S> {
  void write_padding(std::int64_t, std::int64_t, std::int64_t) const override {}
};
ATTEST_PLANT(CachePaddingUnwritten, {.id = "decode_padding_unwritten",
                                     .kind = kKind,
                                     .sentence = "o and lse of padding rows are left as they were",
                                     .base = "decode",
                                     .declares = kDecode});

template <class S>
struct CacheChunkTailLost : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    const std::int64_t rows = q.sequence->queries(), cached = q.sequence->offset;
    const bool left_over = k.position < cached && k.position >= cached / rows * rows;
    return !left_over && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(
    CacheChunkTailLost,
    {.id = "decode_chunk_dependent",
     .kind = kKind,
     .sentence =
         "cached keys are taken in chunks of as many rows as the call; what is left over is lost",
     .reference = "vllm-project/vllm#26042",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheFirstRowsKeys : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    return k.position <= q.sequence->offset && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(CacheFirstRowsKeys, {.id = "chunk_sees_first_new_key_alone",
                                  .kind = kKind,
                                  .sentence = "of a chunk's keys only the first is attended to",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheLongSwitch : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    const bool lost = q.sequence->keys() > 64 && k.position == 64;
    return !lost && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(CacheLongSwitch,
             {.id = "key_lost_beyond_64",
              .kind = kKind,
              .sentence = "more than 64 keys go to another algorithm, which starts one late",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheDeclaredSwitch : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    const bool lost = q.sequence->keys() >= 100 && k.position == 0;
    return !lost && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(
    CacheDeclaredSwitch,
    {.id = "key_lost_at_declared_switch",
     .kind = kKind,
     .sentence =
         "from 100 keys on the kernel takes another way, as it declares, and loses the first key",
     .base = "decode",
     .declares = kSwitchesAt100});

}  // namespace
}  // namespace attest::faulty
