// SPDX-License-Identifier: Apache-2.0
// chunked: online softmax over blocks of 64 keys. Each key block is read once and every query row
// that sees some of it updates its running maximum, sum and output; no matrix of scores exists.
// What a row sees of a block is one 64-bit word, made from at most two intervals of keys; blocks
// that no row can see are skipped before they are read.
//
// Contract: computes in f32 (f64 for f64); weights of f16 and bf16 are rounded to the storage type
// before the product with V, the row sum adds the unrounded ones. RoPE angles are computed here, in
// double; an f64 call uses the caller's tables, because an angle computed in double is off by about
// position * 2^-53. A work item is one sequence and key/value head.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/parallel.hpp"
#include "impls/storage.hpp"

namespace attest {
namespace {

constexpr std::int64_t kBlock = 64;  // keys, the bits of one word
constexpr std::int64_t kTile = 32;   // query rows whose intervals are looked at together
constexpr std::int64_t kLanes = 16;  // partial sums of a dot product

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

/// Where one query row looks, and how far its softmax has come.
template <class C>
struct Row {
  Interval near, leading;  // the keys around it; the global tokens at the start
  C max, sum;
  bool empty;
};

/// The hull of the intervals of kTile rows.
struct Tile {
  Interval near, leading;
};

/// The rows of one sequence: [q0, q0 + queries) and [k0, k0 + keys).
struct Ranges {
  std::int64_t b, q0, queries, k0, keys;
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

std::int64_t value_at(const DLTensor* tensor, std::int64_t i, std::int64_t otherwise) {
  if (!tensor) return otherwise;
  return static_cast<const std::int32_t*>(tensor->data)[i * tensor->strides[0]];
}

template <class Storage>
class Chunked {
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

  /// What a thread keeps between calls. Rows are those of all heads of the group, head after head.
  struct Workspace {
    std::vector<Row<C>> rows;
    std::vector<Tile> tiles;
    std::vector<C> queries, outputs, keys, values;
  };

 public:
  Chunked(const attest_attention& problem, const Sizes& sizes) : p_(problem), s_(sizes) {
    if (!p_.rope) return;
    const auto dims = static_cast<double>(p_.rope_dim);
    const double base =
        p_.rope_ntk == 1 ? p_.rope_base : p_.rope_base * std::pow(p_.rope_ntk, dims / (dims - 2));
    for (std::int64_t t = 0; t < p_.rope_dim / 2; ++t)
      frequencies_.push_back(std::pow(base, -2 * static_cast<double>(t) / dims) / p_.rope_scale);
  }

  void run(int num_threads) const {
    clear_padding();
    parallel_for(s_.sequences * s_.kv_heads, num_threads, [&](std::int64_t item) {
      thread_local Workspace workspace;
      attend(item / s_.kv_heads, item % s_.kv_heads, workspace);
    });
  }

 private:
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
    return {p_.cu_seqlens_q ? 0 : sequence, q0, q1 - q0, k0, k1 - k0};
  }

  /// The keys that a query at `position` may see as far as positions decide.
  void look(Row<C>& row, std::int64_t position, std::int64_t keys, std::int64_t prefix) const {
    Interval base{0, keys};
    if (p_.base != ATTEST_BASE_FULL) base.end = std::min(keys, position + 1);
    if (p_.base == ATTEST_BASE_PREFIX) base.end = std::max(base.end, std::min(keys, prefix));
    row.near = base;
    row.leading = {0, 0};
    const bool sees_all = position >= 0 && position < p_.global_tokens;
    if ((p_.window_left < 0 && p_.window_right < 0) || sees_all) return;
    constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond the distance of any two rows
    const std::int64_t left = p_.window_left < 0 ? kFar : std::min(p_.window_left, kFar);
    const std::int64_t right = p_.window_right < 0 ? kFar : std::min(p_.window_right, kFar);
    row.near = intersect(base, {position - left, position + right + 1});
    row.leading = intersect(base, {0, p_.global_tokens});
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

  void rotate(C* row, std::int64_t position) const {
    const std::int64_t half = p_.rope_dim / 2;
    const std::int64_t step = p_.rope == ATTEST_ROPE_INTERLEAVED ? 2 : 1;
    const std::int64_t partner = p_.rope == ATTEST_ROPE_INTERLEAVED ? 1 : half;
    for (std::int64_t t = 0; t < half; ++t) {
      double cosine, sine;
      if constexpr (std::is_same_v<C, double>) {
        cosine = TensorView<const double>(p_.rope_cos)(position - p_.rope_position, t);
        sine = TensorView<const double>(p_.rope_sin)(position - p_.rope_position, t);
      } else {
        const double angle =
            static_cast<double>(position) * frequencies_[static_cast<std::size_t>(t)];
        cosine = std::cos(angle);
        sine = std::sin(angle);
      }
      const double x = row[t * step], y = row[t * step + partner];
      row[t * step] = static_cast<C>(x * cosine - y * sine);
      row[t * step + partner] = static_cast<C>(x * sine + y * cosine);
    }
  }

  /// From q.k to the logit; `distance` is kpos - qpos.
  C logit(C product, C slope, std::int64_t distance, std::int64_t key) const {
    C alibi = 0;
    switch (p_.alibi) {
      case ATTEST_ALIBI_ABSOLUTE: alibi = -slope * static_cast<C>(std::abs(distance)); break;
      case ATTEST_ALIBI_SIGNED: alibi = slope * static_cast<C>(distance); break;
      case ATTEST_ALIBI_KEY_ANCHORED: alibi = slope * static_cast<C>(key); break;
      default: break;
    }
    const C scaled = product * static_cast<C>(p_.scale);
    const C inner = p_.alibi_inside_softcap ? scaled + alibi : scaled;
    const auto cap = static_cast<C>(p_.softcap);
    const C capped = cap > 0 ? cap * std::tanh(inner / cap) : inner;
    return p_.alibi_inside_softcap ? capped : capped + alibi;
  }

  void clear_padding() const {
    const auto clear = [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = 0; h < s_.heads; ++h)
        for (std::int64_t i = begin; i < end; ++i) write(b, h, i, nullptr, 0, kNone);
    };
    if (p_.cu_seqlens_q) {
      clear(0, value_at(p_.cu_seqlens_q, s_.sequences, 0), s_.q_len);
      return;
    }
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      const Ranges at = ranges(b);
      clear(b, 0, at.q0);
      clear(b, at.q0 + at.queries, s_.q_len);
    }
  }

  /// o = factor * output, or 0 where output is null.
  void write(std::int64_t b, std::int64_t h, std::int64_t i, const C* output, C factor,
             C lse) const {
    Storage* const to = output_row<Storage>(p_.o, b, h, i);
    for (std::int64_t c = 0; c < s_.v_dim; ++c)
      to[c * p_.o->strides[3]] = narrow<Storage>(output ? output[c] * factor : C{0});
    if (p_.lse) TensorView<C>(p_.lse)(b, h, i) = lse;
  }

  /// Key rows [first, first + count) of head g into the workspace.
  void load_block(const Ranges& at, std::int64_t g, std::int64_t first, std::int64_t count,
                  Workspace& w) const {
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

  /// One step of the online softmax: query row i of head h takes in the keys `bits` of the loaded
  /// block, which starts at position `first`.
  void update(const Ranges& at, std::int64_t h, std::int64_t i, std::int64_t position,
              std::int64_t first, std::uint64_t bits, Row<C>& row, const C* query, C* output,
              const Workspace& w) const {
    const TensorView<const Storage> bias(p_.bias);
    const TensorView<const std::uint8_t> keep(p_.keep);
    const TensorView<const C> slopes(p_.alibi_slopes);
    const C slope = !p_.alibi ? C{0} : slopes.rank() == 2 ? slopes(at.b, h) : slopes(h);
    C logits[kBlock];
    C max = row.max;
    for (std::uint64_t todo = bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      const std::int64_t key = first + bit;
      C z = logit(dot(query, w.keys.data() + bit * s_.dim, s_.dim), slope, key - position, key);
      if (bias) z += widen(bias.broadcast(at.b, h, i, at.k0 + key));
      if (z == kNone) bits &= ~(std::uint64_t{1} << bit);
      if (z > max) max = z;
      logits[bit] = z;
    }
    if (bits == 0) return;
    row.empty = false;

    // Exactly 1 where the maximum stays: a residue would grow with every block.
    if (max != row.max) {
      const C alpha = std::exp(row.max - max);
      row.sum *= alpha;
      for (std::int64_t c = 0; c < s_.v_dim; ++c) output[c] *= alpha;
      row.max = max;
    }
    for (std::uint64_t todo = bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      const C e = std::exp(logits[bit] - max);
      row.sum += e;
      if (keep && !keep(at.b, h, i, at.k0 + first + bit)) continue;
      const C weight = sizeof(Storage) == 2 ? static_cast<C>(widen(narrow<Storage>(e))) : e;
      const C* const __restrict value = w.values.data() + bit * s_.v_dim;
      for (std::int64_t c = 0; c < s_.v_dim; ++c) output[c] += weight * value[c];
    }
  }

  /// All query heads of one sequence that share key/value head g.
  void attend(std::int64_t sequence, std::int64_t g, Workspace& w) const {
    const Ranges at = ranges(sequence);
    const std::int64_t offset = p_.align == ATTEST_ALIGN_TOP_LEFT ? 0
                                : p_.align == ATTEST_ALIGN_Q_OFFSET
                                    ? value_at(p_.q_offset, sequence, 0)
                                    : at.keys - at.queries;
    const std::int64_t tiles_per_head = (at.queries + kTile - 1) / kTile;
    Row<C>* const rows = scratch(w.rows, s_.group * at.queries);
    Tile* const tiles = scratch(w.tiles, tiles_per_head * s_.group);
    C* const queries = scratch(w.queries, s_.group * at.queries * s_.dim);
    C* const outputs = scratch(w.outputs, s_.group * at.queries * s_.v_dim);

    std::fill(tiles, tiles + tiles_per_head * s_.group, Tile{{at.keys, 0}, {at.keys, 0}});
    for (std::int64_t r = 0; r < s_.group; ++r) {
      const std::int64_t h = g * s_.group + r;
      const C sink = p_.sink ? TensorView<const C>(p_.sink)(h) : kNone;
      for (std::int64_t i = 0; i < at.queries; ++i) {
        const std::int64_t n = r * at.queries + i;
        Row<C>& row = rows[n];
        look(row, i + offset, at.keys, value_at(p_.prefix_len, sequence, 0));
        Tile& tile = tiles[r * tiles_per_head + i / kTile];
        const auto extend = [](Interval& hull, Interval more) {
          if (more.begin >= more.end) return;
          hull = {std::min(hull.begin, more.begin), std::max(hull.end, more.end)};
        };
        extend(tile.near, row.near);
        extend(tile.leading, row.leading);
        // The sink is a key that every row meets first, with weight exp(sink - max) and no value.
        row.max = sink;
        row.sum = sink == kNone ? C{0} : C{1};
        row.empty = true;
        load_row(row_of<Storage>(p_.q, at.b, h, at.q0 + i), p_.q->strides[3], s_.dim,
                 queries + n * s_.dim);
        if (p_.rope) rotate(queries + n * s_.dim, i + offset);
      }
    }
    std::fill(outputs, outputs + s_.group * at.queries * s_.v_dim, C{0});

    for (std::int64_t first = 0; first < at.keys; first += kBlock) {
      bool loaded = false;
      for (std::int64_t t = 0; t < tiles_per_head * s_.group; ++t) {
        if ((bits_of(tiles[t].near, first) | bits_of(tiles[t].leading, first)) == 0) continue;
        const std::int64_t r = t / tiles_per_head;
        const std::int64_t begin = t % tiles_per_head * kTile;
        for (std::int64_t i = begin; i < std::min(begin + kTile, at.queries); ++i) {
          const std::int64_t n = r * at.queries + i, h = g * s_.group + r;
          std::uint64_t bits = bits_of(rows[n].near, first) | bits_of(rows[n].leading, first);
          if (p_.mask && bits) bits = allowed(bits, p_.mask, at.b, h, at.q0 + i, at.k0 + first, 1);
          if (p_.blocks && bits)
            bits = allowed(bits, p_.blocks, at.b, h, (at.q0 + i) / p_.block_q, at.k0 + first,
                           p_.block_k);
          if (bits == 0) continue;
          if (!loaded) load_block(at, g, first, std::min(kBlock, at.keys - first), w);
          loaded = true;
          update(at, h, at.q0 + i, i + offset, first, bits, rows[n], queries + n * s_.dim,
                 outputs + n * s_.v_dim, w);
        }
      }
    }

    const auto kept = static_cast<C>(1 / (1 - p_.dropout_p));
    for (std::int64_t n = 0; n < s_.group * at.queries; ++n) {
      const std::int64_t h = g * s_.group + n / at.queries, i = at.q0 + n % at.queries;
      const Row<C>& row = rows[n];
      if (row.empty)
        write(at.b, h, i, nullptr, 0, row.max);
      else
        write(at.b, h, i, outputs + n * s_.v_dim, kept / row.sum, row.max + std::log(row.sum));
    }
  }

  const attest_attention& p_;
  const Sizes s_;
  std::vector<double> frequencies_;
};

class ChunkedKernel : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    const Sizes sizes = read_sizes(problem);
    with_storage(sizes.dtype, [&](auto storage) {
      Chunked<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
};
ATTEST_PLUGIN(ChunkedKernel, "chunked", "1.0",
              "dtype=f64,f32,f16,bf16 features=all "
              "precision=f32 precision.f16=mma_f32acc precision.bf16=mma_f32acc "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
