// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: caches of every kind, and decode calls that draw on every feature.
#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "impls/plain_answer.hpp"

namespace attest::testing {

/// A kernel and a kind of cache that it serves.
struct Decoding {
  const char* kernel;
  std::int32_t kind;

  bool splits() const { return kernel != std::string("concat"); }
  std::string name() const {
    const char* const kinds[] = {"contiguous", "ring", "paged"};
    return splits() ? kernel : std::string(kernel) + "_" + kinds[kind];
  }
};
/// How a test names it; its bytes would be another name in each run.
inline void PrintTo(const Decoding& decoding, std::ostream* to) { *to << decoding.name(); }
inline std::vector<Decoding> all_decodings() {
  return {{"concat", ATTEST_CACHE_CONTIGUOUS}, {"concat", ATTEST_CACHE_RING},
          {"concat", ATTEST_CACHE_PAGED},      {"contiguous", ATTEST_CACHE_CONTIGUOUS},
          {"ring", ATTEST_CACHE_RING},         {"paged", ATTEST_CACHE_PAGED}};
}
inline Loaded open_decoding(const std::string& name) {
  return Loaded(ATTEST_BINARY_DIR "/lib/attest/" + name + ".so");
}

/// Entries [begin, end) of one axis of a tensor.
class Slice {
 public:
  Slice(const DLTensor& whole, int axis, std::int64_t begin, std::int64_t end)
      : shape_(whole.shape, whole.shape + whole.ndim), dl_(whole) {
    shape_[static_cast<std::size_t>(axis)] = end - begin;
    dl_.shape = shape_.data();
    dl_.data = static_cast<char*>(whole.data) + begin * whole.strides[axis] * whole.dtype.bits / 8;
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;
  DLTensor* dl() { return &dl_; }

 private:
  Shape shape_;
  DLTensor dl_;
};

/// A cache of any kind, every byte 0xff: NaN where no row has been put, and page -1.
class Cache {
 public:
  /// `capacity` positions per sequence; paged, rounded up to whole pages.
  Cache(std::int32_t kind, DType dtype, const Shape& batch_heads, std::int64_t capacity,
        std::int64_t dim, std::int64_t v_dim, Numbers& numbers)
      : kind_(kind), rows_(kind == ATTEST_CACHE_PAGED ? numbers.between(1, 5) : capacity) {
    std::int64_t entries = batch_heads[0];
    if (kind == ATTEST_CACHE_PAGED) {
      const std::int64_t pages = (capacity + rows_ - 1) / rows_;
      entries = batch_heads[0] * pages + numbers.between(0, 3);
      table_ = std::make_unique<Tensor>(kDlInt32, Shape{batch_heads[0], pages}, std::vector<int>{},
                                        numbers.between(0, 2));
      for (std::int64_t page = 0; page < entries; ++page) unused_.push_back(page);
      for (std::size_t n = unused_.size(); n > 1; --n)
        std::swap(unused_[n - 1], unused_[static_cast<std::size_t>(
                                      numbers.between(0, static_cast<std::int64_t>(n) - 1))]);
    }
    const std::vector<std::vector<int>> orders = {{}, {0, 2, 1, 3}, {2, 0, 3, 1}};
    const auto make = [&](std::int64_t channels) {
      return std::make_unique<Tensor>(
          dl_dtype(dtype), Shape{entries, batch_heads[1], rows_, channels},
          orders[static_cast<std::size_t>(numbers.between(0, 2))], numbers.between(0, 3));
    };
    k_ = make(dim);
    v_ = make(v_dim);
  }

  void give_to(attest_attention& p) {
    p.cache = kind_;
    p.k_cache = k_->dl(), p.v_cache = v_->dl();
    p.block_table = table_ ? table_->dl() : nullptr;
  }
  bool is_paged() const { return kind_ == ATTEST_CACHE_PAGED; }
  Tensor& k() { return *k_; }
  Tensor& v() { return *v_; }
  Tensor& table() { return *table_; }
  std::int64_t rows() const { return rows_; }  ///< C, or page_size

  /// Gives sequence b its pages for `total` positions.
  void reserve(std::int64_t b, std::int64_t total) {
    if (kind_ != ATTEST_CACHE_PAGED) return;
    for (std::int64_t page = 0; page * rows_ < total; ++page) {
      if (table_->get({b, page}) >= 0) continue;
      table_->set({b, page}, static_cast<double>(unused_.back()));
      unused_.pop_back();
    }
  }
  /// Where channel c of a position lies.
  Shape at(std::int64_t b, std::int64_t g, std::int64_t position, std::int64_t c) {
    if (kind_ == ATTEST_CACHE_CONTIGUOUS) return {b, g, position, c};
    if (kind_ == ATTEST_CACHE_RING) return {b, g, position % rows_, c};
    return {static_cast<std::int64_t>(table_->get({b, position / rows_})), g, position % rows_, c};
  }

 private:
  std::int32_t kind_;
  std::int64_t rows_;
  std::unique_ptr<Tensor> k_, v_, table_;
  std::vector<std::int64_t> unused_;
};

/// A decode call, and the forward call over whole sequences that has its answer. The two share all
/// tensors but keys and values.
struct DecodeCall {
  std::unique_ptr<RandomCall> whole;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Tensor> k, v, cache_len;
  attest_attention p;

  std::int64_t cached(std::size_t b) const { return whole->sequences[b].k1 - added(b); }
  std::int64_t added(std::size_t b) const { return whole->sequences[b].q1; }
  std::int64_t batch() const { return static_cast<std::int64_t>(whole->sequences.size()); }
  /// Every tensor by name.
  std::map<std::string, Tensor*> tensors() {
    std::map<std::string, Tensor*> all{{"new k", k.get()},
                                       {"new v", v.get()},
                                       {"k_cache", &cache->k()},
                                       {"v_cache", &cache->v()},
                                       {"cache_len", cache_len.get()}};
    if (cache->is_paged()) all["block_table"] = &cache->table();
    for (const auto& [name, tensor] : whole->tensors) all[name] = tensor.get();
    return all;
  }
};

/// How many rows the ring may have: at least what the window needs, where it may lose old rows.
inline std::int64_t least_capacity(const DecodeCall& call, std::int32_t kind) {
  const attest_attention& p = call.whole->p;
  std::int64_t least = 0, longest = 0;
  for (std::size_t b = 0; b < call.whole->sequences.size(); ++b) {
    const std::int64_t total = call.cached(b) + call.added(b);
    const bool fits = p.window_left > total;  // and the sum below might not fit a number
    least = std::max(least, fits ? total : p.window_left + call.added(b));
    longest = std::max(longest, total);
  }
  const bool may_wrap = kind == ATTEST_CACHE_RING && p.window_left >= 0 && p.global_tokens == 0;
  return may_wrap ? std::min(std::max<std::int64_t>(least, 1), longest) : longest;
}

/// Decode call number `seed` on a cache of this kind. What must not be read is NaN, a page number
/// that does not exist, or a boolean that is neither.
inline DecodeCall random_decode(std::uint64_t seed, DType dtype, std::int32_t kind) {
  Numbers numbers(seed + 31337);
  DecodeCall call;
  call.whole = random_call(seed, dtype, true);
  RandomCall& whole = *call.whole;
  attest_attention& p = call.p;
  p = whole.p;
  const std::int64_t batch = call.batch(), kv_heads = p.k->shape[1], rows = p.q->shape[2];
  const std::int64_t dim = p.k->shape[3], v_dim = p.v->shape[3];
  // Rounded keys in 16 bits are other keys, to which `whole` has no answer.
  p.cache_rotated = p.rope && size_of(dtype) > 2 && numbers.one_in(2);
  if (numbers.one_in(2)) p.num_splits = numbers.one_in(3) ? 1000 : numbers.between(1, 5);
  p.seqlens_k = nullptr;

  const std::int64_t capacity =
      least_capacity(call, kind) + (numbers.one_in(2) ? 0 : numbers.between(0, 4));
  call.cache =
      std::make_unique<Cache>(kind, dtype, Shape{batch, kv_heads}, capacity, dim, v_dim, numbers);
  Cache& cache = *call.cache;
  cache.give_to(p);
  call.cache_len = std::make_unique<Tensor>(kDlInt32, Shape{batch}, std::vector<int>{}, 1);
  const auto make = [&](std::int64_t channels) {
    return std::make_unique<Tensor>(
        dl_dtype(dtype), Shape{batch, kv_heads, rows, channels},
        numbers.one_in(2) ? std::vector<int>{} : std::vector<int>{0, 3, 2, 1},
        numbers.between(0, 2));
  };
  call.k = make(dim);
  call.v = make(v_dim);
  p.k = call.k->dl(), p.v = call.v->dl(), p.cache_len = call.cache_len->dl();
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t cached = call.cached(static_cast<std::size_t>(b));
    const std::int64_t added = call.added(static_cast<std::size_t>(b));
    call.cache_len->set({b}, static_cast<double>(cached));
    cache.reserve(b, cached + added);
    const std::int64_t oldest =
        kind == ATTEST_CACHE_RING ? std::max<std::int64_t>(0, cached - cache.rows()) : 0;
    for (std::int64_t g = 0; g < kv_heads; ++g) {
      for (std::int64_t j = oldest; j < cached + added; ++j) {
        std::vector<double> key = row_at(whole["k"], b, g, j);
        const std::vector<double> value = row_at(whole["v"], b, g, j);
        if (j < cached && p.cache_rotated) key = turned(p, key, j);
        for (std::int64_t c = 0; c < dim; ++c) {
          const double x = key[static_cast<std::size_t>(c)];
          j < cached ? cache.k().set(cache.at(b, g, j, c), x)
                     : call.k->set({b, g, j - cached, c}, x);
        }
        for (std::int64_t c = 0; c < v_dim; ++c) {
          const double x = value[static_cast<std::size_t>(c)];
          j < cached ? cache.v().set(cache.at(b, g, j, c), x)
                     : call.v->set({b, g, j - cached, c}, x);
        }
      }
    }
  }
  return call;
}

}  // namespace attest::testing
