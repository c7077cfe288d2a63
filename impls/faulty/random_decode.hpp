// SPDX-License-Identifier: Apache-2.0
// For the test of the kernels here that decode: small decode calls on caches of every kind, each
// cut from a RandomCall over the whole sequences, whose answer is its own.
#pragma once

#include <algorithm>

#include "impls/plain_answer.hpp"

namespace attest::testing {

struct DecodeCall {
  std::unique_ptr<RandomCall> whole;  ///< o and lse are those of the decode call too
  std::map<std::string, std::unique_ptr<Tensor>> tensors;
  attest_attention p;

  Tensor& operator[](const std::string& name) { return *tensors.at(name); }
  Tensor& add(const std::string& name, DLDataType type, Shape shape, std::vector<int> order = {},
              std::int64_t gap = 0) {
    return *(tensors[name] = std::make_unique<Tensor>(type, std::move(shape), order, gap));
  }
  std::int64_t cached(const SequenceRows& rows) const { return rows.k1 - rows.q1; }

  /// Where position `row` of a sequence lies.
  Shape slot(std::int64_t b, std::int64_t g, std::int64_t row) {
    const std::int64_t rows = p.k_cache->shape[2];
    if (p.cache == ATTEST_CACHE_RING) return {b, g, row % rows, 0};
    if (p.cache == ATTEST_CACHE_CONTIGUOUS) return {b, g, row, 0};
    const auto page = static_cast<std::int64_t>((*this)["block_table"].get({b, row / rows}));
    return {page, g, row % rows, 0};
  }

  /// Every tensor of the call, by its name.
  std::map<std::string, Tensor*> all() {
    std::map<std::string, Tensor*> all;
    for (const auto& entry : whole->tensors)
      if (entry.first != "k" && entry.first != "v" && entry.first != "seqlens_k")
        all[entry.first] = entry.second.get();
    for (const auto& entry : tensors) all[entry.first] = entry.second.get();
    return all;
  }
};

/// Whether a call over whole sequences can be cut into cached and new rows.
inline bool can_be_cut(RandomCall& call) {
  const attest_attention& p = call.p;
  if (p.cu_seqlens_q || p.left_pad_q || p.left_pad_k || p.keep) return false;
  if (p.align != ATTEST_ALIGN_BOTTOM_RIGHT) return false;
  return std::all_of(call.sequences.begin(), call.sequences.end(),
                     [](const SequenceRows& rows) { return rows.q1 <= rows.k1 && rows.k1 > 0; });
}

/// Most calls cannot: of those that can, number n.
inline std::uint64_t seed_that_can_be_cut(std::uint64_t n) {
  static std::vector<std::uint64_t> found;
  static std::uint64_t next = 0;
  for (; found.size() <= n; ++next)
    if (can_be_cut(*random_call(next, DType::f32))) found.push_back(next);
  return found[n];
}

/// Which caches draw_cache() makes: of a size that the rows fit, or one row too few.
enum class Fit { yes, no };

/// A table of pages in any order. The rows that sequences have in common may lie in shared ones.
inline void draw_pages(DecodeCall& call, Numbers& numbers, std::int64_t page_size,
                       std::int64_t entries) {
  const auto& sequences = call.whole->sequences;
  const auto batch = static_cast<std::int64_t>(sequences.size());
  std::int64_t shared = numbers.one_in(3) ? 1000 : 0;
  for (const SequenceRows& rows : sequences)
    shared = std::min(shared, call.cached(rows) / page_size);
  shared = std::min(shared, entries);
  for (const char* name : {"k", "v"})
    (*call.whole)[name].fill([&](const Shape& at) {
      return (*call.whole)[name].get({at[2] < shared * page_size ? 0 : at[0], at[1], at[2], at[3]});
    });

  std::vector<std::int64_t> pool(static_cast<std::size_t>(batch * entries + 2));
  std::iota(pool.begin(), pool.end(), 0);
  for (std::size_t n = pool.size(); n > 1; --n)
    std::swap(pool[n - 1],
              pool[static_cast<std::size_t>(numbers.between(0, static_cast<std::int64_t>(n) - 1))]);
  Tensor& table = call.add("block_table", kDlInt32, {batch, entries}, {}, numbers.between(0, 2));
  std::size_t next = 0;
  table.fill([&](const Shape& at) -> double {
    const bool used = at[1] * page_size < sequences[static_cast<std::size_t>(at[0])].k1;
    if (!used) return numbers.one_in(2) ? -7 : 0x7fffffff;
    if (at[0] > 0 && at[1] < shared) return table.get({0, at[1]});
    return static_cast<double>(pool[next++]);
  });
  call.p.block_table = table.dl();
}

/// The capacity of a sequence's cache.
inline std::int64_t draw_capacity(DecodeCall& call, Numbers& numbers, Fit fit) {
  attest_attention& p = call.p;
  std::int64_t longest = 0, rows = 0;
  for (const SequenceRows& at : call.whole->sequences)
    longest = std::max(longest, at.k1), rows = std::max(rows, at.q1);
  if (p.cache == ATTEST_CACHE_RING && rows < longest && numbers.one_in(2)) {
    p.window_left = numbers.between(0, std::min<std::int64_t>(longest - rows - 1, 8));
    p.global_tokens = 0;
    call.whole->p.window_left = p.window_left, call.whole->p.global_tokens = 0;
  }
  const bool may_wrap = p.cache == ATTEST_CACHE_RING && p.window_left >= 0 &&
                        p.window_left < longest - rows && p.global_tokens == 0;
  const std::int64_t least = may_wrap ? p.window_left + rows : longest;
  return fit == Fit::no ? least - 1
                        : std::max<std::int64_t>(1, numbers.between(least, longest + 3));
}

/// Caches with the rows before the call; all else in them is 0xff bytes.
inline void draw_cache(DecodeCall& call, Numbers& numbers, Fit fit) {
  RandomCall& whole = *call.whole;
  attest_attention& p = call.p;
  const auto batch = static_cast<std::int64_t>(whole.sequences.size());
  const std::int64_t kv_heads = p.k->shape[1];
  p.cache = static_cast<std::int32_t>(numbers.between(0, 2));
  p.cache_rotated = p.rope && numbers.one_in(2);
  if (numbers.one_in(2)) p.num_splits = numbers.between(1, 6);

  std::int64_t capacity = draw_capacity(call, numbers, fit), entries = batch;
  if (p.cache == ATTEST_CACHE_PAGED) {
    const std::int64_t page_size =
        numbers.one_in(4) ? numbers.between(16, 40) : numbers.between(1, 7);
    const std::int64_t pages =
        fit == Fit::yes ? (capacity + page_size - 1) / page_size : capacity / page_size;
    draw_pages(call, numbers, page_size, pages);
    capacity = page_size, entries = batch * pages + 2;
  }
  const std::vector<std::vector<int>> orders = {{}, {0, 2, 1, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}};
  const DLDataType data = dl_dtype(whole.dtype);
  for (const char* name : {"k", "v"}) {
    const std::vector<int>& order = orders[static_cast<std::size_t>(numbers.between(0, 3))];
    call.add(std::string(name) + "_cache", data,
             {entries, kv_heads, std::max<std::int64_t>(capacity, 0), whole[name].extent(3)}, order,
             numbers.between(0, 2));
  }
  p.k_cache = call["k_cache"].dl(), p.v_cache = call["v_cache"].dl();
}

/// What the cache holds of a key or value.
inline std::vector<double> row_as_stored(DecodeCall& call, const char* name, std::int64_t b,
                                         std::int64_t g, std::int64_t row) {
  const std::vector<double> x = row_at((*call.whole)[name], b, g, row);
  return name[0] == 'k' && call.p.cache_rotated ? turned(call.p, x, row) : x;
}

/// One cached position that the mask hides from every row holds NaN.
inline void hide_nan(DecodeCall& call, Numbers& numbers) {
  RandomCall& whole = *call.whole;
  std::int64_t cached = whole["k"].extent(2);
  for (const SequenceRows& rows : whole.sequences) cached = std::min(cached, call.cached(rows));
  if (!whole.p.mask || whole["mask"].extent(3) == 1 || cached == 0) return;
  const std::int64_t hidden = numbers.between(0, cached - 1);
  const auto spoil = [&](const char* name, int axis, double value) {
    whole[name].fill([&](const Shape& at) {
      return at[static_cast<std::size_t>(axis)] == hidden ? value : whole[name].get(at);
    });
  };
  spoil("mask", 3, 0);
  spoil("k", 2, std::nan(""));
  spoil("v", 2, std::nan(""));
}

/// Decode call number `seed`.
inline std::unique_ptr<DecodeCall> random_decode(std::uint64_t seed, DType dtype,
                                                 Fit fit = Fit::yes) {
  auto made = std::make_unique<DecodeCall>();
  DecodeCall& call = *made;
  call.whole = random_call(seed_that_can_be_cut(seed), dtype);
  RandomCall& whole = *call.whole;
  Numbers numbers(seed);
  call.p = whole.p;
  attest_attention& p = call.p;
  if (numbers.one_in(2)) hide_nan(call, numbers);
  draw_cache(call, numbers, fit);

  const auto batch = static_cast<std::int64_t>(whole.sequences.size());
  Tensor& lengths = call.add("cache_len", kDlInt32, {batch});
  p.cache_len = lengths.dl(), p.seqlens_k = nullptr;
  const DLDataType data = dl_dtype(dtype);
  for (const char* name : {"k", "v"}) {
    Tensor& all = whole[name];
    Tensor& fresh = call.add(name, data, {batch, all.extent(1), p.q->shape[2], all.extent(3)},
                             numbers.one_in(2) ? std::vector<int>{} : std::vector<int>{0, 2, 1, 3},
                             numbers.between(0, 2));
    Tensor& cache = call[std::string(name) + "_cache"];
    for (const SequenceRows& rows : whole.sequences) {
      lengths.set({rows.b}, static_cast<double>(call.cached(rows)));
      for (std::int64_t g = 0; g < all.extent(1); ++g)
        for (std::int64_t c = 0; c < all.extent(3); ++c) {
          for (std::int64_t i = 0; i < rows.q1; ++i)
            fresh.set({rows.b, g, i, c}, all.get({rows.b, g, call.cached(rows) + i, c}));
          for (std::int64_t row = 0; fit == Fit::yes && row < call.cached(rows); ++row) {
            Shape at = call.slot(rows.b, g, row);
            at[3] = c;
            cache.set(at, row_as_stored(call, name, rows.b, g, row)[static_cast<std::size_t>(c)]);
          }
        }
    }
  }
  p.k = call["k"].dl(), p.v = call["v"].dl();
  return made;
}

}  // namespace attest::testing
