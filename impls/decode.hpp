// SPDX-License-Identifier: Apache-2.0
// Decoding in place, for caches of any kind: `contiguous`, `ring` and `paged` each say where a
// position lies and nothing else. No other implementation includes this.
//
// New rows are written into the cache first; then every key is read from it, 64 positions at a
// time, by an online softmax. The keys of a sequence are split into parts that threads work on at
// once (flash-decoding), and the parts are merged by their lse (docs/semantics.md, section 6).
// Its two halves, maximum and sum, stay apart until the end: rounded to one number, the lse of a
// part would add a relative error of |lse| roundings to everything that the part holds.
//
// A kind of cache is a class Rows with
//
//   explicit Rows(const attest_attention&);
//   Storage* row<Storage>(const DLTensor* cache, b, g, position) const;
//   std::int64_t oldest(std::int64_t total) const;  // first position that is there after the
//   append
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/cache.hpp"
#include "impls/parallel.hpp"
#include "impls/rope_table.hpp"
#include "impls/storage.hpp"

namespace attest::decode {

inline constexpr std::int64_t kBlock = 64;       // keys that are loaded together
inline constexpr std::int64_t kTile = 16;        // new rows of a head that are worked on together
inline constexpr std::int64_t kSplitKeys = 512;  // keys of a part where the caller does not say
inline constexpr std::int64_t kPartialElements = std::int64_t{1} << 22;  // of all parts at a time

/// New rows [begin, end) of one sequence and the query heads of key/value head g, whose keys are
/// worked on in `splits` parts. Partial results begin at number `partials`.
struct Tile {
  std::int64_t b, g, begin, end;
  CachedSequence at;
  std::int64_t splits, partials;
};

/// Positions that a query row sees as far as positions decide: [begin, end), and the global tokens
/// [0, leading).
struct Sight {
  std::int64_t begin, end, leading;
};

/// How far the softmax of a row has come; its output so far is not divided by `sum`.
template <class C>
struct Softmax {
  C max = -std::numeric_limits<C>::infinity();
  C sum = 0;
  bool empty = true;
};

/// What a thread keeps between calls: the query rows of a tile, and one block of keys, [D, kBlock]
/// and [kBlock, Dv].
template <class C>
struct Workspace {
  std::vector<C> queries, key, keys, values;
  std::vector<Sight> sights;
};

template <class Storage, class Rows>
class Call {
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

 public:
  Call(const attest_attention& problem, const Sizes& sizes)
      : p_(problem),
        s_(sizes),
        rows_(problem),
        rope_{TensorView<const C>(problem.rope_cos), TensorView<const C>(problem.rope_sin),
              problem.rope_position} {}

  void run(int num_threads) const {
    // A few rows are copied before a thread has started.
    parallel_for(s_.batch * s_.kv_heads, s_.q_len > kTile ? num_threads : 1,
                 [&](std::int64_t item) { append(item / s_.kv_heads, item % s_.kv_heads); });
    std::vector<Tile> tiles;
    std::int64_t partials = 0;
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      clear_padding(b);
      for (Tile& tile : tiles_of(b)) {
        if ((partials + partials_of(tile)) * s_.v_dim > kPartialElements && partials > 0) {
          attend(tiles, num_threads);
          tiles.clear();
          partials = 0;
        }
        tile.partials = partials;
        partials += partials_of(tile);
        tiles.push_back(tile);
      }
    }
    attend(tiles, num_threads);
  }

 private:
  std::int64_t rows_of(const Tile& tile) const { return (tile.end - tile.begin) * s_.group; }
  std::int64_t partials_of(const Tile& tile) const { return rows_of(tile) * tile.splits; }
  /// Row n of a tile: all new rows of the group's first head, then those of the next.
  std::int64_t head(const Tile& tile, std::int64_t n) const {
    return tile.g * s_.group + n / (tile.end - tile.begin);
  }
  static std::int64_t query(const Tile& tile, std::int64_t n) {
    return tile.begin + n % (tile.end - tile.begin);
  }

  void rotate(C* row, std::int64_t position) const {
    rope_by_table(row, p_.rope, p_.rope_dim, rope_, position);
  }

  /// The new rows of head g into the cache.
  void append(std::int64_t b, std::int64_t g) const {
    thread_local std::vector<C> buffer;
    C* const turned = scratch(buffer, s_.dim);
    const CachedSequence at = cached_sequence(p_, b);
    for (std::int64_t i = 0; i < at.added; ++i) {
      const Storage* const key = row_of<Storage>(p_.k, b, g, i);
      Storage* const to = rows_.template row<Storage>(p_.k_cache, b, g, at.cached + i);
      if (p_.rope && p_.cache_rotated) {
        load_row(key, p_.k->strides[3], s_.dim, turned);
        rotate(turned, at.cached + i);
        store_row<Storage>(turned, 1, s_.dim, to, p_.k_cache->strides[3]);
      } else {
        copy_row(key, p_.k->strides[3], s_.dim, to, p_.k_cache->strides[3]);
      }
      copy_row(row_of<Storage>(p_.v, b, g, i), p_.v->strides[3], s_.v_dim,
               rows_.template row<Storage>(p_.v_cache, b, g, at.cached + i),
               p_.v_cache->strides[3]);
    }
  }

  void clear_padding(std::int64_t b) const {
    for (std::int64_t h = 0; h < s_.heads; ++h)
      for (std::int64_t i = cached_sequence(p_, b).added; i < s_.q_len; ++i)
        write(b, h, i, nullptr, kNone);
  }

  /// o = output, or 0 where it is null.
  void write(std::int64_t b, std::int64_t h, std::int64_t i, const C* output, C lse) const {
    Storage* const to = output_row<Storage>(p_.o, b, h, i);
    for (std::int64_t c = 0; c < s_.v_dim; ++c)
      to[c * p_.o->strides[3]] = narrow<Storage>(output ? output[c] : C{0});
    if (p_.lse) TensorView<C>(p_.lse)(b, h, i) = lse;
  }

  /// The number of parts depends on the sequence's own keys alone, so that neither threads nor the
  /// rest of the batch change a bit. More parts than keys are as many as keys: the others are
  /// empty.
  std::vector<Tile> tiles_of(std::int64_t b) const {
    const CachedSequence at = cached_sequence(p_, b);
    const std::int64_t keys = at.total - rows_.oldest(at.total);
    const std::int64_t wanted =
        p_.num_splits > 0 ? p_.num_splits : (keys + kSplitKeys - 1) / kSplitKeys;
    const std::int64_t splits =
        std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, keys));
    std::vector<Tile> tiles;
    for (std::int64_t g = 0; g < s_.kv_heads; ++g)
      for (std::int64_t i = 0; i < at.added; i += kTile)
        tiles.push_back({b, g, i, std::min(i + kTile, at.added), at, splits, 0});
    return tiles;
  }

  void attend(const std::vector<Tile>& tiles, int num_threads) const {
    struct Part {
      std::size_t tile;
      std::int64_t split;
    };
    std::vector<Part> parts;
    std::int64_t partials = 0;
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      partials += partials_of(tiles[t]);
      for (std::int64_t split = 0; split < tiles[t].splits; ++split) parts.push_back({t, split});
    }
    thread_local std::vector<Softmax<C>> state_buffer;
    thread_local std::vector<C> output_buffer;
    Softmax<C>* const states = scratch(state_buffer, partials);
    C* const outputs = scratch(output_buffer, partials * s_.v_dim);
    parallel_for(static_cast<std::int64_t>(parts.size()), num_threads, [&](std::int64_t n) {
      const auto [t, split] = parts[static_cast<std::size_t>(n)];
      const Tile& tile = tiles[t];
      const std::int64_t first = tile.partials + split * rows_of(tile);
      attend_part(tile, split, states + first, outputs + first * s_.v_dim);
      if (tile.splits == 1) merge(tile, states, outputs);
    });
    if (tiles.size() == parts.size()) return;
    parallel_for(static_cast<std::int64_t>(tiles.size()), num_threads, [&](std::int64_t t) {
      const Tile& tile = tiles[static_cast<std::size_t>(t)];
      if (tile.splits > 1) merge(tile, states, outputs);
    });
  }

  Sight sight(const Tile& tile, std::int64_t position) const {
    const std::int64_t total = tile.at.total;
    std::int64_t reach = total;  // of base
    if (p_.base != ATTEST_BASE_FULL) reach = position + 1;
    if (p_.base == ATTEST_BASE_PREFIX) {
      const std::int64_t prefix = TensorView<const std::int32_t>(p_.prefix_len)(tile.b);
      reach = std::clamp(prefix, reach, total);
    }
    if ((p_.window_left < 0 && p_.window_right < 0) || position < p_.global_tokens)
      return {0, reach, 0};
    // Bounds may be the largest integer: nothing is added to them.
    const bool left = p_.window_left >= 0 && p_.window_left < position;
    const bool right = p_.window_right >= 0 && p_.window_right < reach - position;
    return {left ? position - p_.window_left : 0, right ? position + p_.window_right + 1 : reach,
            std::min(reach, p_.global_tokens)};
  }

  /// Which positions of [first, last) row n sees; returns how many.
  std::int64_t seen(const Tile& tile, std::int64_t n, const Sight& sight, std::int64_t first,
                    std::int64_t last, std::int64_t* positions) const {
    const TensorView<const std::uint8_t> mask(p_.mask), blocks(p_.blocks);
    const std::int64_t b = tile.b, h = head(tile, n), i = query(tile, n);
    std::int64_t count = 0;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) {
        if (mask && !mask.broadcast(b, h, i, j)) continue;
        if (blocks && !blocks.broadcast(b, h, i / p_.block_q, j / p_.block_k)) continue;
        positions[count++] = j;
      }
    };
    const std::int64_t leading = std::clamp(sight.leading, first, last);
    add(first, leading);
    add(std::max(leading, sight.begin), std::min(last, sight.end));
    return count;
  }

  void load_queries(const Tile& tile, Workspace<C>& w) const {
    C* query_row = scratch(w.queries, rows_of(tile) * s_.dim);
    Sight* const sights = scratch(w.sights, rows_of(tile));
    for (std::int64_t n = 0; n < rows_of(tile); ++n, query_row += s_.dim) {
      const std::int64_t i = query(tile, n), position = tile.at.cached + i;
      sights[n] = sight(tile, position);
      load_row(row_of<Storage>(p_.q, tile.b, head(tile, n), i), p_.q->strides[3], s_.dim,
               query_row);
      if (p_.rope) rotate(query_row, position);
    }
  }

  void load_block(const Tile& tile, std::int64_t first, std::int64_t last, Workspace<C>& w) const {
    C* const key = scratch(w.key, s_.dim);
    C* const keys = scratch(w.keys, s_.dim * kBlock);
    C* const values = scratch(w.values, kBlock * s_.v_dim);
    for (std::int64_t t = 0; t < last - first; ++t) {
      const std::int64_t j = first + t;
      load_row<Storage>(rows_.template row<Storage>(p_.k_cache, tile.b, tile.g, j),
                        p_.k_cache->strides[3], s_.dim, key);
      if (p_.rope && !p_.cache_rotated) rotate(key, j);
      for (std::int64_t c = 0; c < s_.dim; ++c) keys[c * kBlock + t] = key[c];
      load_row<Storage>(rows_.template row<Storage>(p_.v_cache, tile.b, tile.g, j),
                        p_.v_cache->strides[3], s_.v_dim, values + t * s_.v_dim);
    }
  }

  /// From q.k to the score of row n with position j.
  C score(const Tile& tile, std::int64_t n, std::int64_t j, C product) const {
    const std::int64_t h = head(tile, n), i = query(tile, n);
    C z = product * static_cast<C>(p_.scale);
    C alibi = 0;
    if (p_.alibi) {
      const std::int64_t behind = tile.at.cached + i - j;
      const TensorView<const C> slopes(p_.alibi_slopes);
      alibi = slopes.rank() == 2 ? slopes(tile.b, h) : slopes(h);
      switch (p_.alibi) {
        case ATTEST_ALIBI_ABSOLUTE: alibi *= static_cast<C>(behind < 0 ? behind : -behind); break;
        case ATTEST_ALIBI_SIGNED: alibi *= static_cast<C>(-behind); break;
        default: alibi *= static_cast<C>(j);
      }
    }
    if (p_.alibi_inside_softcap) z += alibi;
    if (const auto cap = static_cast<C>(p_.softcap); cap > 0) z = cap * std::tanh(z / cap);
    if (!p_.alibi_inside_softcap) z += alibi;
    if (p_.bias) z += widen(TensorView<const Storage>(p_.bias).broadcast(tile.b, h, i, j));
    return z;
  }

  /// The online softmax of row n takes in `count` positions of the block that begins at `first`.
  void absorb(const Tile& tile, std::int64_t n, const std::int64_t* positions, std::int64_t count,
              std::int64_t first, const Workspace<C>& w, Softmax<C>& state, C* output) const {
    C products[kBlock] = {};
    const C* const query_row = w.queries.data() + n * s_.dim;
    for (std::int64_t c = 0; c < s_.dim; ++c) {
      const C* const __restrict channel = w.keys.data() + c * kBlock;
      for (std::int64_t t = 0; t < kBlock; ++t) products[t] += query_row[c] * channel[t];
    }
    C z[kBlock];
    C max = state.max;
    for (std::int64_t m = 0; m < count; ++m) {
      z[m] = score(tile, n, positions[m], products[positions[m] - first]);
      if (z[m] > max) max = z[m];
    }
    // Exactly 1 where the maximum stays: a residue would grow with every block.
    const C shrink = max == state.max ? C{1} : std::exp(state.max - max);
    state.max = max;
    state.sum *= shrink;
    for (std::int64_t c = 0; c < s_.v_dim; ++c) output[c] *= shrink;
    for (std::int64_t m = 0; m < count; ++m) {
      if (z[m] == kNone) continue;  // a bias of -inf; its weight of 0 would let a NaN through
      state.empty = false;
      const C weight = std::exp(z[m] - max);
      state.sum += weight;
      const C* const __restrict value = w.values.data() + (positions[m] - first) * s_.v_dim;
      for (std::int64_t c = 0; c < s_.v_dim; ++c) output[c] += weight * value[c];
    }
  }

  /// One part of the keys for all rows of a tile: states[rows] and outputs[rows, Dv]. Blocks that
  /// no row sees are not loaded.
  void attend_part(const Tile& tile, std::int64_t split, Softmax<C>* states, C* outputs) const {
    thread_local Workspace<C> w;
    const std::int64_t rows = rows_of(tile);
    std::fill(states, states + rows, Softmax<C>{});
    std::fill(outputs, outputs + rows * s_.v_dim, C{0});
    load_queries(tile, w);
    const std::int64_t oldest = rows_.oldest(tile.at.total);
    const std::int64_t size = (tile.at.total - oldest + tile.splits - 1) / tile.splits;
    const std::int64_t begin = oldest + split * size;
    const std::int64_t end = std::min(begin + size, tile.at.total);
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t last = std::min(first + kBlock, end);
      bool loaded = false;
      for (std::int64_t n = 0; n < rows; ++n) {
        std::int64_t positions[kBlock];
        const std::int64_t count =
            seen(tile, n, w.sights[static_cast<std::size_t>(n)], first, last, positions);
        if (count == 0) continue;
        if (!loaded) load_block(tile, first, last, w);
        loaded = true;
        absorb(tile, n, positions, count, first, w, states[n], outputs + n * s_.v_dim);
      }
    }
  }

  void merge(const Tile& tile, const Softmax<C>* states, C* outputs) const {
    for (std::int64_t n = 0; n < rows_of(tile); ++n)
      merge_row(tile, n, states + tile.partials, outputs + tile.partials * s_.v_dim);
  }

  /// Row n of a tile from its parts, which lie rows_of(tile) apart. The sink is a part of its own,
  /// which has weight and no value. Parts that saw nothing are left out, since -inf - -inf is no
  /// number; where all are, the output is 0 and the lse that of the sink.
  void merge_row(const Tile& tile, std::int64_t n, const Softmax<C>* states, C* outputs) const {
    const std::int64_t rows = rows_of(tile), h = head(tile, n);
    const C sink = p_.sink ? TensorView<const C>(p_.sink)(h) : kNone;
    C max = sink;
    for (std::int64_t part = n; part < rows * tile.splits; part += rows)
      if (states[part].max > max) max = states[part].max;
    C sum = sink == kNone ? C{0} : std::exp(sink - max);
    for (std::int64_t part = n; part < rows * tile.splits; part += rows)
      if (!states[part].empty) sum += states[part].sum * std::exp(states[part].max - max);
    C* const merged = outputs + n * s_.v_dim;  // the first part's place, which is read first
    for (std::int64_t part = n; part < rows * tile.splits; part += rows) {
      const C share = states[part].empty ? C{0} : std::exp(states[part].max - max) / sum;
      const C* const output = outputs + part * s_.v_dim;
      for (std::int64_t c = 0; c < s_.v_dim; ++c)
        merged[c] = (part == n ? C{0} : merged[c]) + share * output[c];
    }
    write(tile.b, h, query(tile, n), merged, max + std::log(sum));
  }

  const attest_attention& p_;
  const Sizes s_;
  const Rows rows_;
  const RopeTable<C> rope_;
};

/// Serves one kind of cache.
template <class Rows>
void run(const attest_attention& problem, const Context& context, std::int32_t kind) {
  const Sizes sizes = read_cache_sizes(problem, {kind});
  with_storage(sizes.dtype, [&](auto storage) {
    Call<decltype(storage), Rows>(problem, sizes).run(context.num_threads);
  });
}

}  // namespace attest::decode
