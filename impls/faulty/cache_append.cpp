// SPDX-License-Identifier: Apache-2.0
// Faults of append in which rows of a cache are written.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache append";

template <class S>
struct CacheRowAhead : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    return this->slot(at, at.offset + i + 1);
  }
};
ATTEST_PLANT(CacheRowAhead, {.id = "cache_append_wrong_row",
                             .kind = kKind,
                             .sentence = "new rows are written one row behind their place",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheRowBefore : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    return this->slot(at, std::max<std::int64_t>(0, at.offset + i - 1));
  }
};
ATTEST_PLANT(CacheRowBefore, {.id = "append_over_last_cached_row",
                              .kind = kKind,
                              .sentence = "the first new row overwrites the last cached one",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheFirstRowOnly : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    if (at.queries() > 0) this->append_row(at, 0);
  }
};
ATTEST_PLANT(CacheFirstRowOnly, {.id = "append_only_first_row",
                                 .kind = kKind,
                                 .sentence = "of several new rows only the first is written",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheLastRowLost : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    const std::int64_t rows = at.queries() > 1 ? at.queries() - 1 : at.queries();
    for (std::int64_t i = 0; i < rows; ++i) this->append_row(at, i);
  }
};
ATTEST_PLANT(CacheLastRowLost, {.id = "append_last_row_lost",
                                .kind = kKind,
                                .sentence = "of several new rows the last is not written",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheFirstHeadOnly : StepwiseDecode<S> {
  void append_row(const Sequence& at, std::int64_t i) const override {
    this->append_head(at, 0, i);
  }
};
ATTEST_PLANT(CacheFirstHeadOnly, {.id = "append_only_first_head",
                                  .kind = kKind,
                                  .sentence = "rows of the first key/value head alone are written",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheHeadsIntoFirst : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t,
           const std::vector<S>& row) const override {
    StepwiseDecode<S>::put(cache, to, 0, row);
  }
};
ATTEST_PLANT(CacheHeadsIntoFirst, {.id = "append_heads_into_first",
                                   .kind = kKind,
                                   .sentence = "every head is written into the rows of head 0",
                                   .base = "decode",
                                   .declares = kDecode});

template <class S>
struct CacheRowsReversed : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    return this->slot(at, at.offset + at.queries() - 1 - i);
  }
};
ATTEST_PLANT(CacheRowsReversed, {.id = "append_rows_reversed",
                                 .kind = kKind,
                                 .sentence = "the last new row is written first",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheRowTwice : StepwiseDecode<S> {
  void append_head(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    StepwiseDecode<S>::append_head(at, g, i);
    const std::int64_t next = at.offset + i + 1;
    if (next >= this->capacity()) return;
    this->put(this->problem.k_cache, this->slot(at, next), g, this->stored_key(at, g, i));
    this->put(this->problem.v_cache, this->slot(at, next), g, this->stored_value(at, g, i));
  }
};
ATTEST_PLANT(CacheRowTwice, {.id = "append_row_twice",
                             .kind = kKind,
                             .sentence = "each new row is written into the row behind as well",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheNextCleared : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    StepwiseDecode<S>::append(at);
    if (at.queries() == 0 || this->end(at) >= this->capacity()) return;
    const Slot next = this->slot(at, this->end(at));
    for (const DLTensor* cache : {this->problem.k_cache, this->problem.v_cache})
      for (std::int64_t g = 0; g < this->sizes.kv_heads; ++g)
        this->put(cache, next, g, std::vector<S>(static_cast<std::size_t>(cache->shape[3])));
  }
};
ATTEST_PLANT(CacheNextCleared, {.id = "append_clears_next_row",
                                .kind = kKind,
                                .sentence = "the row behind the new ones is set to 0",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CachePaddingAppended : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    for (std::int64_t i = 0; i < this->sizes.q_len; ++i)
      if (i < at.queries() || at.offset + i < this->capacity()) this->append_row(at, i);
  }
};
ATTEST_PLANT(CachePaddingAppended, {.id = "append_writes_padding_rows",
                                    .kind = kKind,
                                    .sentence = "padding rows of the call are appended too",
                                    .base = "decode",
                                    .declares = kDecode});

template <class S>
struct CacheEmptyAppended : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    StepwiseDecode<S>::append(at);
    if (at.queries() == 0 && this->sizes.q_len > 0 && at.offset < this->capacity())
      this->append_row(at, 0);
  }
};
ATTEST_PLANT(CacheEmptyAppended, {.id = "append_row_of_empty_sequence",
                                  .kind = kKind,
                                  .sentence = "a sequence without new rows gets one",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheBehindLongest : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < this->sizes.batch; ++b)
      longest = std::max(longest, this->cached(b));
    return this->slot(at, longest + i);
  }
};
ATTEST_PLANT(CacheBehindLongest,
             {.id = "append_behind_longest",
              .kind = kKind,
              .sentence = "every sequence's rows are written behind the longest cached one",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheBehindFirst : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    return this->slot(at, this->cached(0) + i);
  }
};
ATTEST_PLANT(CacheBehindFirst,
             {.id = "append_behind_length_of_first",
              .kind = kKind,
              .sentence = "rows are written behind as many cached ones as sequence 0 has",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheFromRowZero : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override { return this->slot(at, i); }
};
ATTEST_PLANT(CacheFromRowZero, {.id = "append_from_row_0",
                                .kind = kKind,
                                .sentence = "every call writes its rows from row 0 on",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheWholeChunks : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    return this->slot(at, at.offset / at.queries() * at.queries() + i);
  }
};
ATTEST_PLANT(CacheWholeChunks,
             {.id = "append_behind_whole_chunks",
              .kind = kKind,
              .sentence = "a cache is taken to hold whole chunks of as many rows as this call",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheIntoFirstSequence : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    Sequence first = at;
    first.b = 0;
    return this->slot(first, at.offset + i);
  }
};
ATTEST_PLANT(CacheIntoFirstSequence,
             {.id = "append_into_sequence_0",
              .kind = kKind,
              .sentence = "every sequence's rows are written into the cache of sequence 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheFirstChunkNotStored : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    if (at.offset > 0) StepwiseDecode<S>::append(at);
  }
};
ATTEST_PLANT(
    CacheFirstChunkNotStored,
    {.id = "append_skipped_without_cache",
     .kind = kKind,
     .sentence = "a call on an empty cache is taken for a plain forward: it stores nothing",
     .base = "decode",
     .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
