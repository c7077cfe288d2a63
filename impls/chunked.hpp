// SPDX-License-Identifier: Apache-2.0
// What forward and backward of `chunked` share: the intervals of keys that a query row sees, blocks
// of 64 keys, and the logits of a row with a block. No other implementation includes this.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/storage.hpp"

namespace attest::chunked {

using std::exp, std::log, std::tanh;  // of other number types: found by argument

inline constexpr std::int64_t kBlock = 64;  // keys, the bits of one word
inline constexpr std::int64_t kTile = 32;   // query rows whose intervals are looked at together
inline constexpr std::int64_t kLanes = 16;  // partial sums of a dot product

/// Key positions [begin, end); empty where end <= begin.
struct Interval {
  std::int64_t begin = 0, end = 0;
};

constexpr Interval intersect(Interval a, Interval b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// The positions start .. start+63 that lie in the interval, as bits.
constexpr std::uint64_t bits_of(Interval interval, std::int64_t start) {
  const Interval local = intersect({interval.begin - start, interval.end - start}, {0, kBlock});
  if (local.begin >= local.end) return 0;
  return (~std::uint64_t{0} >> (kBlock - (local.end - local.begin))) << local.begin;
}

/// Where one query row looks: the keys around it, and the global tokens at the start. Also the hull
/// of the intervals of kTile rows.
struct Look {
  Interval near, leading;
};

/// The rows of one sequence, [q0, q0 + queries) and [k0, k0 + keys), and the position of query q0.
struct Ranges {
  std::int64_t b, q0, queries, k0, keys, offset, prefix;
};

/// Query rows that are worked on together: [begin, end) of a sequence, counted from its q0, in the
/// heads [first_head, last_head), which all read key/value head g. Row n is that of head
/// first_head + n / (end - begin).
struct Span {
  Ranges at;
  std::int64_t g, first_head, last_head, begin, end;

  std::int64_t length() const { return end - begin; }
  std::int64_t rows() const { return (last_head - first_head) * length(); }
  std::int64_t head(std::int64_t n) const { return first_head + n / length(); }
  std::int64_t query(std::int64_t n) const { return begin + n % length(); }
};

/// The logits of one query row with one block of keys; bit t of `bits` is key position first + t.
template <class C>
struct Scores {
  std::int64_t first;
  std::uint64_t bits;
  C z[kBlock];
  C slope[kBlock];  ///< d z / d (scale q.k)
};

/// How far the softmax of one query row has come.
template <class C>
struct Softmax {
  C max, sum;
  bool empty;
};

/// What a thread keeps between calls: the rows of a span, and one block of keys.
template <class C>
struct Workspace {
  std::vector<Look> looks, tiles;
  std::vector<Softmax<C>> rows;
  std::vector<C> queries, outputs, keys, values;
};

template <class C>
C dot(const C* __restrict a, const C* __restrict b, std::int64_t n) {
  C lanes[kLanes] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[c + lane] * b[c + lane];
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  for (; c < n; ++c) lanes[0] += a[c] * b[c];
  return lanes[0];
}

inline std::int64_t value_at(const DLTensor* tensor, std::int64_t i, std::int64_t otherwise) {
  if (!tensor) return otherwise;
  return static_cast<const std::int32_t*>(tensor->data)[i * tensor->strides[0]];
}

template <class C>
void add_multiple(C factor, const C* __restrict x, std::int64_t n, C* __restrict to) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * x[c];
}

template <class Storage>
class Call {
 public:
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

  Call(const attest_attention& problem, const Sizes& sizes) : p_(problem), s_(sizes) {
    if (!p_.rope) return;
    const auto dims = static_cast<double>(p_.rope_dim);
    const double base =
        p_.rope_ntk == 1 ? p_.rope_base : p_.rope_base * std::pow(p_.rope_ntk, dims / (dims - 2));
    for (std::int64_t t = 0; t < p_.rope_dim / 2; ++t)
      frequencies_.push_back(std::pow(base, -2 * static_cast<double>(t) / dims) / p_.rope_scale);
  }

 protected:
  Ranges ranges(std::int64_t sequence) const {
    std::int64_t q0, q1, k0, k1;
    if (p_.cu_seqlens_q) {
      q0 = value_at(p_.cu_seqlens_q, sequence, 0);
      q1 = value_at(p_.cu_seqlens_q, sequence + 1, 0);
      k0 = value_at(p_.cu_seqlens_k, sequence, 0);
      k1 = value_at(p_.cu_seqlens_k, sequence + 1, 0);
    } else {
      q0 = value_at(p_.left_pad_q, sequence, 0);
      q1 = value_at(p_.seqlens_q, sequence, s_.q_len);
      k0 = value_at(p_.left_pad_k, sequence, 0);
      k1 = value_at(p_.seqlens_k, sequence, s_.kv_len);
    }
    if (q0 < 0 || q0 > q1 || q1 > s_.q_len)
      throw Invalid("query rows of sequence " + std::to_string(sequence) + " lie outside q");
    if (k0 < 0 || k0 > k1 || k1 > s_.kv_len)
      throw Invalid("key rows of sequence " + std::to_string(sequence) + " lie outside k");
    const std::int64_t offset = p_.align == ATTEST_ALIGN_TOP_LEFT ? 0
                                : p_.align == ATTEST_ALIGN_Q_OFFSET
                                    ? value_at(p_.q_offset, sequence, 0)
                                    : (k1 - k0) - (q1 - q0);
    return {p_.cu_seqlens_q ? 0 : sequence,      q0, q1 - q0, k0, k1 - k0, offset,
            value_at(p_.prefix_len, sequence, 0)};
  }

  /// The keys that a query at `position` may see as far as positions decide.
  Look look(std::int64_t position, std::int64_t keys, std::int64_t prefix) const {
    Interval base{0, keys};
    if (p_.base != ATTEST_BASE_FULL) base.end = std::min(keys, position + 1);
    if (p_.base == ATTEST_BASE_PREFIX) base.end = std::max(base.end, std::min(keys, prefix));
    const bool sees_all = position >= 0 && position < p_.global_tokens;
    if ((p_.window_left < 0 && p_.window_right < 0) || sees_all) return {base, {0, 0}};
    constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond the distance of any two rows
    const std::int64_t left = p_.window_left < 0 ? kFar : std::min(p_.window_left, kFar);
    const std::int64_t right = p_.window_right < 0 ? kFar : std::min(p_.window_right, kFar);
    return {intersect(base, {position - left, position + right + 1}),
            intersect(base, {0, p_.global_tokens})};
  }

  /// Those of `bits` whose entry of the [B|1, Hq|1, *, *] bitmap is set; bit 0 is key row `first`.
  static std::uint64_t allowed(std::uint64_t bits, const DLTensor* bitmap, std::int64_t b,
                               std::int64_t h, std::int64_t row, std::int64_t first,
                               std::int64_t keys_per_entry) {
    const auto step = [bitmap](int axis) {
      return bitmap->shape[axis] == 1 ? 0 : bitmap->strides[axis];
    };
    const auto* entries =
        static_cast<const std::uint8_t*>(bitmap->data) + b * step(0) + h * step(1) + row * step(2);
    for (std::uint64_t todo = bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      if (entries[(first + bit) / keys_per_entry * step(3)] == 0)
        bits &= ~(std::uint64_t{1} << bit);
    }
    return bits;
  }

  /// row := R(position) row; with direction -1 the way back.
  void rotate(C* row, std::int64_t position, int direction = 1) const {
    using Wide = decltype(wide(C{}));
    const std::int64_t half = p_.rope_dim / 2;
    const std::int64_t step = p_.rope == ATTEST_ROPE_INTERLEAVED ? 2 : 1;
    const std::int64_t partner = p_.rope == ATTEST_ROPE_INTERLEAVED ? 1 : half;
    for (std::int64_t t = 0; t < half; ++t) {
      Wide cosine, sine;
      if constexpr (std::is_same_v<C, double>) {
        cosine = TensorView<const double>(p_.rope_cos)(position - p_.rope_position, t);
        sine = TensorView<const double>(p_.rope_sin)(position - p_.rope_position, t);
      } else {
        const double angle =
            static_cast<double>(position) * frequencies_[static_cast<std::size_t>(t)];
        cosine = std::cos(angle);
        sine = std::sin(angle);
      }
      sine *= direction;
      const Wide x(row[t * step]), y(row[t * step + partner]);
      row[t * step] = static_cast<C>(x * cosine - y * sine);
      row[t * step + partner] = static_cast<C>(x * sine + y * cosine);
    }
  }

  /// What a slope of 1 adds to the logit; `distance` is kpos - qpos.
  C alibi_distance(std::int64_t distance, std::int64_t key) const {
    switch (p_.alibi) {
      case ATTEST_ALIBI_ABSOLUTE: return -static_cast<C>(std::abs(distance));
      case ATTEST_ALIBI_SIGNED: return static_cast<C>(distance);
      case ATTEST_ALIBI_KEY_ANCHORED: return static_cast<C>(key);
      default: return 0;
    }
  }

  /// From q.k to the logit without its bias, and the logit's slope.
  std::pair<C, C> logit(C product, C alibi) const {
    const C scaled = product * static_cast<C>(p_.scale);
    const C inner = p_.alibi_inside_softcap ? scaled + alibi : scaled;
    const auto cap = static_cast<C>(p_.softcap);
    const C t = cap > 0 ? tanh(inner / cap) : C{0};
    const C capped = cap > 0 ? cap * t : inner;
    return {p_.alibi_inside_softcap ? capped : capped + alibi, 1 - t * t};
  }

  /// Key rows [first, first + count) of head g into the workspace.
  void load_block(const Ranges& at, std::int64_t g, std::int64_t first, std::int64_t count,
                  Workspace<C>& w) const {
    C* const keys = scratch(w.keys, kBlock * s_.dim);
    C* const values = scratch(w.values, kBlock * s_.v_dim);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t row = at.k0 + first + j;
      load_row(row_of<Storage>(p_.k, at.b, g, row), p_.k->strides[3], s_.dim, keys + j * s_.dim);
      if (p_.rope) rotate(keys + j * s_.dim, first + j);
      load_row(row_of<Storage>(p_.v, at.b, g, row), p_.v->strides[3], s_.v_dim,
               values + j * s_.v_dim);
    }
  }

  /// Row n of the span with those keys of the loaded block that `bits` names.
  void score(const Span& span, std::int64_t n, const Workspace<C>& w, Scores<C>& scores) const {
    const TensorView<const Storage> bias(p_.bias);
    const TensorView<const C> slopes(p_.alibi_slopes);
    const Ranges& at = span.at;
    const std::int64_t h = span.head(n), i = span.query(n);
    const C slope = !p_.alibi ? C{0} : slopes.rank() == 2 ? slopes(at.b, h) : slopes(h);
    for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      const std::int64_t key = scores.first + bit;
      auto [z, d_z] =
          logit(dot(w.queries.data() + n * s_.dim, w.keys.data() + bit * s_.dim, s_.dim),
                slope * alibi_distance(key - i - at.offset, key));
      if (bias) z += widen(bias.broadcast(at.b, h, at.q0 + i, at.k0 + key));
      if (z == kNone) scores.bits &= ~(std::uint64_t{1} << bit);
      scores.z[bit] = z;
      scores.slope[bit] = d_z;
    }
  }

  /// One step of the online softmax: z := exp(z - max) with the new maximum, which joins the sum.
  /// Returns what sums over earlier keys are multiplied by, exactly 1 where the maximum stays: a
  /// residue would grow with every block.
  static C absorb(Scores<C>& scores, Softmax<C>& row) {
    C max = row.max;
    for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1)
      if (const C z = scores.z[std::countr_zero(todo)]; z > max) max = z;
    const C alpha = max == row.max ? C{1} : exp(row.max - max);
    if (scores.bits != 0) row.empty = false;
    row.max = max;
    row.sum *= alpha;
    for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
      C& z = scores.z[std::countr_zero(todo)];
      z = exp(z - max);
      row.sum += z;
    }
    return alpha;
  }

  /// The sink is a key that every row meets first, with weight exp(sink - max) and no value.
  void meet_sinks(const Span& span, Workspace<C>& w) const {
    Softmax<C>* const rows = scratch(w.rows, span.rows());
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const C sink = p_.sink ? TensorView<const C>(p_.sink)(span.head(n)) : kNone;
      rows[n] = {sink, sink == kNone ? C{0} : C{1}, true};
    }
  }

  std::int64_t tiles_per_head(const Span& span) const {
    return (span.length() + kTile - 1) / kTile;
  }

  /// Queries of the span, and where they look.
  void load_queries(const Span& span, Workspace<C>& w) const {
    const std::int64_t tiles_of_head = tiles_per_head(span);
    const std::int64_t num_tiles = tiles_of_head * (span.last_head - span.first_head);
    Look* const looks = scratch(w.looks, span.rows());
    Look* const tiles = scratch(w.tiles, num_tiles);
    C* const queries = scratch(w.queries, span.rows() * s_.dim);
    const auto extend = [](Interval& hull, Interval more) {
      if (more.begin >= more.end) return;
      hull = {std::min(hull.begin, more.begin), std::max(hull.end, more.end)};
    };
    std::fill(tiles, tiles + num_tiles, Look{{span.at.keys, 0}, {span.at.keys, 0}});
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const std::int64_t h = span.head(n), i = span.query(n);
      looks[n] = look(i + span.at.offset, span.at.keys, span.at.prefix);
      Look& tile = tiles[(h - span.first_head) * tiles_of_head + (i - span.begin) / kTile];
      extend(tile.near, looks[n].near);
      extend(tile.leading, looks[n].leading);
      load_row(row_of<Storage>(p_.q, span.at.b, h, span.at.q0 + i), p_.q->strides[3], s_.dim,
               queries + n * s_.dim);
      if (p_.rope) rotate(queries + n * s_.dim, i + span.at.offset);
    }
  }

  /// The keys of the block at `first` that row n sees.
  std::uint64_t sees(const Span& span, std::int64_t n, std::int64_t first, const Look& look) const {
    const std::int64_t b = span.at.b, h = span.head(n), i = span.at.q0 + span.query(n);
    std::uint64_t bits = bits_of(look.near, first) | bits_of(look.leading, first);
    if (p_.mask && bits) bits = allowed(bits, p_.mask, b, h, i, span.at.k0 + first, 1);
    if (p_.blocks && bits)
      bits = allowed(bits, p_.blocks, b, h, i / p_.block_q, span.at.k0 + first, p_.block_k);
    return bits;
  }

  /// body(n, scores) for every block of keys and every row of the span that sees some of it, with
  /// the block loaded. Blocks that no row sees are not.
  template <class Body>
  void walk(const Span& span, Workspace<C>& w, Body&& body) const {
    const std::int64_t tiles_of_head = tiles_per_head(span);
    Scores<C> scores;
    for (std::int64_t first = 0; first < span.at.keys; first += kBlock) {
      bool loaded = false;
      for (std::int64_t t = 0; t < tiles_of_head * (span.last_head - span.first_head); ++t) {
        const Look& tile = w.tiles[static_cast<std::size_t>(t)];
        if ((bits_of(tile.near, first) | bits_of(tile.leading, first)) == 0) continue;
        const std::int64_t head_start = t / tiles_of_head * span.length();
        const std::int64_t begin = t % tiles_of_head * kTile;
        for (std::int64_t i = begin; i < std::min(begin + kTile, span.length()); ++i) {
          const std::int64_t n = head_start + i;
          scores.first = first;
          scores.bits = sees(span, n, first, w.looks[static_cast<std::size_t>(n)]);
          if (scores.bits == 0) continue;
          if (!loaded)
            load_block(span.at, span.g, first, std::min(kBlock, span.at.keys - first), w);
          loaded = true;
          score(span, n, w, scores);
          if (scores.bits != 0) body(n, scores);
        }
      }
    }
  }

  const attest_attention& p_;
  const Sizes s_;

 private:
  std::vector<double> frequencies_;
};

}  // namespace attest::chunked
