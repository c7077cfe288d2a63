// SPDX-License-Identifier: Apache-2.0
// What the decoding implementations share because it is no part of attention: the sizes of a decode
// call, whether its tensors agree with them, and whether the new rows fit. Nothing here knows where
// a position lies or which key a query sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "attest/plugin.hpp"
#include "attest/tensor.hpp"
#include "impls/storage.hpp"

namespace attest {

/// One sequence of a decode call: positions [0, cached) lie in the cache, [cached, total) are those
/// of its `added` new rows, which are rows [0, added) of q, k and v.
struct CachedSequence {
  std::int64_t cached, added, total;
};

inline CachedSequence cached_sequence(const attest_attention& p, std::int64_t b) {
  const std::int64_t cached = TensorView<const std::int32_t>(p.cache_len)(b);
  const std::int64_t added =
      p.seqlens_q ? TensorView<const std::int32_t>(p.seqlens_q)(b) : p.q->shape[2];
  return {cached, added, cached + added};
}

/// Throws Unsupported for what no decoding implementation serves.
inline void accept_cache_kinds(const attest_attention& p,
                               std::initializer_list<std::int32_t> kinds) {
  if (std::find(kinds.begin(), kinds.end(), p.cache) == kinds.end())
    throw Unsupported("this kind of cache is not served");
  if (p.align != ATTEST_ALIGN_BOTTOM_RIGHT)
    throw Unsupported("new rows stand behind the cached ones: no other alignment is served");
  if (p.cu_seqlens_q || p.cu_seqlens_k) throw Unsupported("cu_seqlens is not served with a cache");
  if (p.left_pad_q || p.left_pad_k) throw Unsupported("left_pad is not served with a cache");
  if (p.seqlens_k) throw Unsupported("seqlens_k beside cache_len is not served");
  if (p.keep || p.dropout_p != 0) throw Unsupported("dropout is not served with a cache");
}

/// Throws Invalid where the rows of a sequence do not fit, or a page that it uses does not exist.
inline void check_fit(const attest_attention& p, std::int64_t b) {
  const CachedSequence at = cached_sequence(p, b);
  const auto refuse = [b](const char* why) {
    throw Invalid("sequence " + std::to_string(b) + ": " + why);
  };
  if (at.cached < 0) refuse("cache_len is negative");
  if (at.added < 0 || at.added > p.q->shape[2]) refuse("seqlens_q is no number of rows of q");
  const std::int64_t rows = p.k_cache->shape[2];
  if (p.cache == ATTEST_CACHE_CONTIGUOUS && at.total > rows) refuse("the cache is full");
  if (p.cache == ATTEST_CACHE_RING && at.total > rows) {
    // Compared by difference: window_left may be the largest integer.
    if (p.window_left < 0 || rows - at.added < p.window_left)
      refuse("the ring would lose keys that the window sees");
    if (p.global_tokens > 0) refuse("the ring would lose global tokens");
  }
  if (p.cache == ATTEST_CACHE_PAGED) {
    if (at.total > p.block_table->shape[1] * rows) refuse("the block table is full");
    const TensorView<const std::int32_t> table(p.block_table);
    for (std::int64_t page = 0; page * rows < at.total; ++page)
      if (table(b, page) < 0 || table(b, page) >= p.k_cache->shape[0])
        refuse("a page number lies outside the pool");
  }
}

/// The axis of key positions of a mask, bias or bitmap must reach `keys` entries, or broadcast.
inline void check_key_axis(const DLTensor* tensor, const char* name, DLDataType type,
                           const Sizes& s, std::int64_t rows, std::int64_t keys) {
  if (!tensor) return;
  if (tensor->ndim != 4) throw Invalid(std::string(name) + " has the wrong rank");
  const std::int64_t given = tensor->shape[3];
  check_tensor(tensor, name, type, {s.batch, s.heads, rows, std::max(given, keys)}, true);
}

/// The sizes of a decode call, kv_len being the positions of its longest sequence. Throws before
/// anything is written: Unsupported for what is not served, Invalid where tensors contradict each
/// other or new rows do not fit.
inline Sizes read_cache_sizes(const attest_attention& p,
                              std::initializer_list<std::int32_t> kinds) {
  accept_cache_kinds(p, kinds);
  attest_attention plain = p;  // k and v have one row for each of q here, and no axis of all keys
  plain.bias = plain.mask = plain.blocks = nullptr;
  Sizes s = read_sizes(plain);
  const DLDataType data = dl_dtype(s.dtype);
  check_tensor(p.k, "k", data, {s.batch, s.kv_heads, s.q_len, s.dim});

  const bool paged = p.cache == ATTEST_CACHE_PAGED;
  if (p.k_cache->ndim != 4) throw Invalid("k_cache has the wrong rank");
  const std::int64_t entries = paged ? p.k_cache->shape[0] : s.batch, rows = p.k_cache->shape[2];
  check_tensor(p.k_cache, "k_cache", data, {entries, s.kv_heads, rows, s.dim});
  check_tensor(p.v_cache, "v_cache", data, {entries, s.kv_heads, rows, s.v_dim});
  check_tensor(p.cache_len, "cache_len", kDlInt32, {s.batch});
  if (paged) {
    if (p.block_table->ndim != 2) throw Invalid("block_table has the wrong rank");
    check_tensor(p.block_table, "block_table", kDlInt32, {s.batch, p.block_table->shape[1]});
  }
  if (p.num_splits < 0) throw Invalid("num_splits is negative");

  s.kv_len = 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    check_fit(p, b);
    s.kv_len = std::max(s.kv_len, cached_sequence(p, b).total);
  }
  check_key_axis(p.bias, "bias", data, s, s.q_len, s.kv_len);
  check_key_axis(p.mask, "mask", kDlUint8, s, s.q_len, s.kv_len);
  if (p.blocks) {
    if (p.block_q < 1 || p.block_k < 1) throw Invalid("blocks without block_q, block_k");
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); };
    check_key_axis(p.blocks, "blocks", kDlUint8, s, ceil_div(s.q_len, p.block_q),
                   ceil_div(s.kv_len, p.block_k));
  }
  return s;
}

/// n elements as they are, bit for bit: the strides are those of both rows.
template <class Storage>
void copy_row(const Storage* from, std::int64_t from_stride, std::int64_t n, Storage* to,
              std::int64_t to_stride) {
  for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

}  // namespace attest
