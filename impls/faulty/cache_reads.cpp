// SPDX-License-Identifier: Apache-2.0
// Faults of reading a cache: heads, strides, rows.
#include <cmath>
#include <cstdint>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache reads";

template <class S>
struct CacheGqaModulo : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_block(const Sequence& at, std::int64_t h, Block<C>& block) const override {
    StepwiseDecode<S>::load_block(at, h, block);
    for (std::int64_t n = 0; n < block.count; ++n) {
      const Key& k = block.keys[static_cast<std::size_t>(n)];
      if (this->from_cache(at, k))
        this->load_cached_key(at, h % this->sizes.kv_heads, k,
                              block.k.data() + n * this->sizes.dim);
    }
  }
};
ATTEST_PLANT(
    CacheGqaModulo,
    {.id = "cache_gqa_modulo",
     .kind = kKind,
     .sentence = "of cached keys query head h reads head h mod Hkv, of new ones the right one",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheValueByKey : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t* const strides = this->problem.k_cache->strides;
    const Slot slot = this->load_slot(at, k);
    load_row(static_cast<const S*>(this->problem.v_cache->data) + slot.entry * strides[0] +
                 g * strides[1] + slot.row * strides[2],
             strides[3], this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(CacheValueByKey,
             {.id = "v_cache_with_strides_of_k_cache",
              .kind = kKind,
              .sentence = "the value cache is read with the strides of the key cache",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheHeadsOfNew : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const S* const head = this->cache_row(this->problem.k_cache, this->load_slot(at, k), 0);
    load_row(head + g * this->problem.k->strides[1], this->problem.k_cache->strides[3],
             this->sizes.dim, to);
    if (this->problem.rope && !this->problem.cache_rotated) this->turn_cached_key(at, k, to);
  }
};
ATTEST_PLANT(CacheHeadsOfNew,
             {.id = "cache_head_stride_of_new_rows",
              .kind = kKind,
              .sentence = "heads of the key cache are taken to lie as far apart as those of k",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRowsPacked : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const DLTensor& cache = *this->problem.v_cache;
    const Slot slot = this->load_slot(at, k);
    const S* const head = this->cache_row(&cache, {slot.entry, 0}, g);
    load_row(head + slot.row * this->sizes.v_dim, cache.strides[3], this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(CacheRowsPacked,
             {.id = "cache_rows_taken_as_packed",
              .kind = kKind,
              .sentence = "rows of the value cache are taken to lie one after another",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheOffsetUint16 : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const DLTensor& cache = *this->problem.v_cache;
    const auto* const base = static_cast<const char*>(cache.data);
    const auto* const row =
        reinterpret_cast<const char*>(this->cache_row(&cache, this->load_slot(at, k), g));
    const auto offset = static_cast<std::uint16_t>(row - base);
    load_row(reinterpret_cast<const S*>(base + offset), cache.strides[3], this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(CacheOffsetUint16, {.id = "cache_offset_uint16",
                                 .kind = kKind,
                                 .sentence = "byte offsets in the value cache are kept in 16 bits",
                                 .dtypes = kWideTypes,
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheReadFirst : StepwiseDecode<S> {
  Slot load_slot(const Sequence& at, const Key& k) const override {
    Sequence first = at;
    first.b = 0;
    return this->slot(first, k.position);
  }
};
ATTEST_PLANT(CacheReadFirst, {.id = "cache_of_sequence_0_read",
                              .kind = kKind,
                              .sentence = "every sequence attends to the cached rows of sequence 0",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheValueRowLate : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Key next = k;
    if (k.position + 1 < this->end(at)) ++next.position;
    StepwiseDecode<S>::load_cached_value(at, g, next, to);
  }
};
ATTEST_PLANT(CacheValueRowLate, {.id = "cached_values_one_row_late",
                                 .kind = kKind,
                                 .sentence = "a cached key has the value of the row behind it",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheReadBeforeAppend : StepwiseDecode<S> {
  void run_decode() override {
    this->check_fits();
    this->run();
    this->append_all();
  }
  bool from_cache(const Sequence&, const Key&) const override { return true; }
};
ATTEST_PLANT(CacheReadBeforeAppend,
             {.id = "new_rows_read_before_append",
              .kind = kKind,
              .sentence = "new rows are read from the cache before they are there",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRightAligned : StepwiseDecode<S> {
  Slot load_slot(const Sequence& at, const Key& k) const override {
    if (this->ring() || this->paged()) return StepwiseDecode<S>::load_slot(at, k);
    return {at.b, this->capacity() - at.offset + k.position};
  }
};
ATTEST_PLANT(CacheRightAligned,
             {.id = "cache_taken_for_right_aligned",
              .kind = kKind,
              .sentence = "cached rows are read from the end of a contiguous cache",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheOldestLost : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    return (k.position > 0 || q.sequence->offset == 0) && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(CacheOldestLost, {.id = "oldest_cached_key_lost",
                               .kind = kKind,
                               .sentence = "the key at position 0 is never read",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CacheLastCachedLost : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    return k.position != q.sequence->offset - 1 && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(CacheLastCachedLost, {.id = "last_cached_key_lost",
                                   .kind = kKind,
                                   .sentence = "the last cached key is not read",
                                   .base = "decode",
                                   .declares = kDecode});

template <class S>
struct CacheSeamTwice : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = StepwiseDecode<S>::score(q, k, query, key);
    return k.position == q.sequence->offset ? z + std::log(C{2}) : z;
  }
};
ATTEST_PLANT(
    CacheSeamTwice,
    {.id = "first_new_key_counted_twice",
     .kind = kKind,
     .sentence = "the first new key is in both loops, that over the cache and that over new rows",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheMaskedTimesZero : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    StepwiseDecode<S>::accumulate(row, seen, block);
    for (std::size_t n = 0; n < block.keys.size(); ++n)
      if (this->from_cache(*row.query.sequence, block.keys[n]))
        for (std::size_t c = 0; c < row.o.size(); ++c)
          row.o[c] += C{0} * block.v[n * row.o.size() + c];
  }
};
ATTEST_PLANT(CacheMaskedTimesZero,
             {.id = "masked_cached_value_times_zero",
              .kind = kKind,
              .sentence = "cached values that a row does not see are multiplied by 0",
              .base = "decode",
              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
