// SPDX-License-Identifier: Apache-2.0
// Faults of RoPE with a cache: at which positions queries, new and cached keys are turned, and how
// keys are stored.
#include <vector>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache rope";

template <class S>
struct CacheRopeQueryRow : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query local = q;
    local.position = q.row;
    StepwiseDecode<S>::load_query(local, to);
  }
};
ATTEST_PLANT(CacheRopeQueryRow, {.id = "decode_rope_offset_zero",
                                 .kind = kKind,
                                 .sentence = "queries are rotated to their rows in the call",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheRopeQueryNext : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query next = q;
    ++next.position;
    StepwiseDecode<S>::load_query(next, to);
  }
};
ATTEST_PLANT(CacheRopeQueryNext, {.id = "decode_rope_query_one_ahead",
                                  .kind = kKind,
                                  .sentence = "queries are rotated to the position behind theirs",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheRopeQueryLast : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query last = q;
    last.position = this->end(*q.sequence) - 1;
    StepwiseDecode<S>::load_query(last, to);
  }
};
ATTEST_PLANT(CacheRopeQueryLast,
             {.id = "decode_rope_query_of_last_row",
              .kind = kKind,
              .sentence = "every query of a chunk is rotated to the position of the last",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeShiftOnce : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query local = q;
    if (q.row > 0) local.position = q.row;
    StepwiseDecode<S>::load_query(local, to);
  }
  void turn_new_key(const Sequence& at, const Key& k, C* key) const override {
    const std::int64_t row = k.position - at.offset;
    this->rotate(key, row > 0 ? row : k.position);
  }
  void turn_stored_key(const Sequence& at, std::int64_t i, C* key) const override {
    this->rotate(key, i > 0 ? i : at.offset);
  }
};
ATTEST_PLANT(
    CacheRopeShiftOnce,
    {.id = "rope_shift_applied_once",
     .kind = kKind,
     .sentence =
         "only the first row of a chunk is shifted by the cache's length before it is rotated",
     .reference = "ggml-org/llama.cpp#3825",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheRopeOfFirst : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query other = q;
    other.position = q.row + this->cached(0);
    StepwiseDecode<S>::load_query(other, to);
  }
  void turn_new_key(const Sequence& at, const Key& k, C* key) const override {
    this->rotate(key, k.position - at.offset + this->cached(0));
  }
  void turn_stored_key(const Sequence&, std::int64_t i, C* key) const override {
    this->rotate(key, i + this->cached(0));
  }
};
ATTEST_PLANT(CacheRopeOfFirst,
             {.id = "rope_length_of_first_sequence",
              .kind = kKind,
              .sentence = "queries and new keys are rotated as if behind the cache of sequence 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeNewKeyRow : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_new_key(const Sequence& at, const Key& k, C* key) const override {
    this->rotate(key, k.position - at.offset);
  }
  void turn_stored_key(const Sequence&, std::int64_t i, C* key) const override {
    this->rotate(key, i);
  }
};
ATTEST_PLANT(CacheRopeNewKeyRow, {.id = "new_keys_turned_by_chunk_row",
                                  .kind = kKind,
                                  .sentence = "new keys are rotated to their rows in the call",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheRopeNewKeyRaw : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_new_key(const Sequence&, const Key&, C*) const override {}
};
ATTEST_PLANT(CacheRopeNewKeyRaw,
             {.id = "new_keys_not_turned",
              .kind = kKind,
              .sentence = "new keys are not rotated in the call that brings them",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeStoredRaw : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_stored_key(const Sequence&, std::int64_t, C*) const override {}
};
ATTEST_PLANT(CacheRopeStoredRaw, {.id = "keys_stored_unturned",
                                  .kind = kKind,
                                  .sentence = "a cache of rotated keys gets new ones as they are",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CacheRopeStoredTwice : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_stored_key(const Sequence& at, std::int64_t i, C* key) const override {
    this->rotate(key, at.offset + i);
    this->rotate(key, at.offset + i);
  }
};
ATTEST_PLANT(CacheRopeStoredTwice,
             {.id = "keys_stored_turned_twice",
              .kind = kKind,
              .sentence = "new keys are rotated, and again before they are stored",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeStoredRow : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_stored_key(const Sequence&, std::int64_t i, C* key) const override {
    this->rotate(key, i);
  }
};
ATTEST_PLANT(
    CacheRopeStoredRow,
    {.id = "keys_stored_turned_by_chunk_row",
     .kind = kKind,
     .sentence = "new keys are stored rotated to their rows in the call, and attended rightly",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheRopeStoredHalves : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_stored_key(const Sequence& at, std::int64_t i, C* key) const override {
    const std::int64_t half = this->problem.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      C cosine, sine;
      this->rotation(at.offset + i, t, cosine, sine);
      const C x = key[t], y = key[t + half];
      key[t] = x * cosine - y * sine;
      key[t + half] = x * sine + y * cosine;
    }
  }
};
ATTEST_PLANT(CacheRopeStoredHalves,
             {.id = "keys_stored_turned_in_halves",
              .kind = kKind,
              .sentence = "stored keys are rotated in pairs (t, t + R/2), interleaved or not",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeAlwaysStored : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  std::vector<S> stored_key(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    std::vector<S> row = StepwiseDecode<S>::stored_key(at, g, i);
    if (!this->problem.rope || this->problem.cache_rotated) return row;
    std::vector<C> key(row.size());
    load_row(row.data(), 1, this->sizes.dim, key.data());
    this->rotate(key.data(), at.offset + i);
    store_row(key.data(), C{1}, this->sizes.dim, row.data(), 1);
    return row;
  }
};
ATTEST_PLANT(CacheRopeAlwaysStored, {.id = "keys_stored_turned_in_raw_cache",
                                     .kind = kKind,
                                     .sentence = "a cache of raw keys gets new ones rotated",
                                     .base = "decode",
                                     .declares = kDecode});

template <class S>
struct CacheRopeReadTwice : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    StepwiseDecode<S>::load_cached_key(at, g, k, to);
    if (this->problem.rope && this->problem.cache_rotated) this->turn_cached_key(at, k, to);
  }
};
ATTEST_PLANT(CacheRopeReadTwice,
             {.id = "rotated_cache_turned_again",
              .kind = kKind,
              .sentence = "keys that lie rotated in the cache are rotated once more",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeReadRaw : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_cached_key(const Sequence&, const Key&, C*) const override {}
};
ATTEST_PLANT(CacheRopeReadRaw, {.id = "raw_cache_not_turned",
                                .kind = kKind,
                                .sentence = "raw cached keys are attended without their rotation",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheRopeBySlot : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_cached_key(const Sequence& at, const Key& k, C* key) const override {
    this->rotate(key, this->slot(at, k.position).row);
  }
};
ATTEST_PLANT(CacheRopeBySlot,
             {.id = "raw_cache_turned_by_slot",
              .kind = kKind,
              .sentence = "raw cached keys are rotated to their rows in the ring or page",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRopeReadLate : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void turn_cached_key(const Sequence&, const Key& k, C* key) const override {
    this->rotate(key, k.position + 1);
  }
};
ATTEST_PLANT(CacheRopeReadLate, {.id = "raw_cache_turned_one_ahead",
                                 .kind = kKind,
                                 .sentence = "raw cached keys are rotated to positions from 1 on",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheRopeValues : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    std::vector<S> row = StepwiseDecode<S>::stored_value(at, g, i);
    if (!this->problem.rope || this->problem.rope_dim > this->sizes.v_dim) return row;
    std::vector<C> value(row.size());
    load_row(row.data(), 1, this->sizes.v_dim, value.data());
    this->rotate(value.data(), at.offset + i);
    store_row(value.data(), C{1}, this->sizes.v_dim, row.data(), 1);
    return row;
  }
};
ATTEST_PLANT(CacheRopeValues,
             {.id = "values_stored_turned",
              .kind = kKind,
              .sentence = "new values are rotated with the keys on their way into the cache",
              .base = "decode",
              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
