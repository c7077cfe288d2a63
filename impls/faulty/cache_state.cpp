// SPDX-License-Identifier: Apache-2.0
// Faults of decoding in what is written besides the new rows, and in what is kept between calls.
#include <algorithm>
#include <map>
#include <vector>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache state";

template <class S>
struct CacheLenAdvanced : StepwiseDecode<S> {
  void run_decode() override {
    StepwiseDecode<S>::run_decode();
    const TensorView<std::int32_t> lengths(this->problem.cache_len);
    for (std::int64_t b = 0; b < this->sizes.batch; ++b)
      lengths(b) += static_cast<std::int32_t>(this->new_rows(b));
  }
};
ATTEST_PLANT(CacheLenAdvanced, {.id = "cache_len_advanced",
                                .kind = kKind,
                                .sentence = "the caller's cache_len is moved on by the kernel",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheNewTurnedInPlace : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void run_decode() override {
    StepwiseDecode<S>::run_decode();
    if (!this->problem.rope) return;
    std::vector<C> key(static_cast<std::size_t>(this->sizes.dim));
    for (std::int64_t b = 0; b < this->sizes.batch; ++b) {
      const Sequence at = this->sequence(b);
      for (std::int64_t g = 0; g < this->sizes.kv_heads; ++g)
        for (std::int64_t i = 0; i < at.queries(); ++i) {
          this->load_new_key(at, g, {at.offset + i, at.offset + i}, key.data());
          store_row(key.data(), C{1}, this->sizes.dim, output_row<S>(this->problem.k, b, g, i),
                    this->problem.k->strides[3]);
        }
    }
  }
};
ATTEST_PLANT(CacheNewTurnedInPlace,
             {.id = "new_keys_turned_in_place",
              .kind = kKind,
              .sentence = "RoPE is applied to the caller's new keys in place",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheTurnedInPlace : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void run_decode() override {
    StepwiseDecode<S>::run_decode();
    const attest_attention& p = this->problem;
    if (!p.rope || p.cache_rotated || this->ring()) return;
    std::vector<C> key(static_cast<std::size_t>(this->sizes.dim));
    for (std::int64_t b = 0; b < this->sizes.batch; ++b) {
      const Sequence at = this->sequence(b);
      for (std::int64_t g = 0; g < this->sizes.kv_heads; ++g)
        for (std::int64_t position = 0; position < at.offset; ++position) {
          this->load_cached_key(at, g, {position, position}, key.data());
          store_row(key.data(), C{1}, this->sizes.dim,
                    this->cache_row(p.k_cache, this->slot(at, position), g), p.k_cache->strides[3]);
        }
    }
  }
};
ATTEST_PLANT(
    CacheTurnedInPlace,
    {.id = "cached_keys_turned_in_place",
     .kind = kKind,
     .sentence = "raw cached keys are rotated in the cache itself, once more in every call",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheUnusedZeroed : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    StepwiseDecode<S>::append(at);
    if (this->ring() || this->paged()) return;
    for (const DLTensor* cache : {this->problem.k_cache, this->problem.v_cache})
      for (std::int64_t g = 0; g < this->sizes.kv_heads; ++g)
        for (std::int64_t row = this->end(at); row < this->capacity(); ++row)
          this->put(cache, {at.b, row}, g,
                    std::vector<S>(static_cast<std::size_t>(cache->shape[3])));
  }
};
ATTEST_PLANT(CacheUnusedZeroed,
             {.id = "unused_rows_zeroed",
              .kind = kKind,
              .sentence = "every row of a contiguous cache behind the new ones is set to 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLengthsKept : StepwiseDecode<S> {
  void run_decode() override {
    static std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> recorded;
    const std::vector<std::int64_t> shape = {this->sizes.batch, this->sizes.q_len,
                                             this->problem.cache, this->capacity()};
    std::vector<std::int64_t> now;
    for (std::int64_t b = 0; b < this->sizes.batch; ++b) now.push_back(this->cached(b));
    kept = now;
    this->check_fits();
    this->append_all();
    kept = recorded.emplace(shape, now).first->second;
    this->run();
  }
  std::int64_t cache_len(std::int64_t b) const override {
    return kept[static_cast<std::size_t>(b)];
  }
  std::vector<std::int64_t> kept;
};
ATTEST_PLANT(
    CacheLengthsKept,
    {.id = "lengths_of_first_call_kept",
     .kind = kKind,
     .sentence = "the lengths that a shape was first called with are kept, as in a recorded graph",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheTableKept : StepwiseDecode<S> {
  void run_decode() override {
    static std::map<std::vector<std::int64_t>, std::vector<std::int32_t>> recorded;
    if (this->paged()) {
      const std::int64_t batch = this->sizes.batch, extent = this->problem.block_table->shape[1];
      std::vector<std::int32_t> now;
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t n = 0; n < extent; ++n)
          now.push_back(static_cast<std::int32_t>(StepwiseDecode<S>::page(b, n)));
      const std::vector<std::int64_t> shape = {batch, extent, this->problem.k_cache->shape[0]};
      kept = recorded.emplace(shape, now).first->second;
    }
    StepwiseDecode<S>::run_decode();
  }
  std::int64_t page(std::int64_t b, std::int64_t index) const override {
    const std::int64_t extent = this->problem.block_table->shape[1];
    return kept[static_cast<std::size_t>(b * extent + std::min(index, extent - 1))];
  }
  std::vector<std::int32_t> kept;
};
ATTEST_PLANT(
    CacheTableKept,
    {.id = "block_table_of_first_call_kept",
     .kind = kKind,
     .sentence = "the pages that a shape was first called with are kept, as in a recorded graph",
     .base = "decode",
     .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
