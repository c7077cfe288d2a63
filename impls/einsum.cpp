// SPDX-License-Identifier: Apache-2.0
// einsum: attention as a chain of whole-array steps, to be read beside docs/semantics.md. Axes are
// r (query heads that share one key/value head), q, k, d (channels of q and k), v (channels of v):
//
//   scores  = contract("rqd,dk->rqk", queries, keys)
//   outputs = contract("rqk,kv->rqv", weights, values)
//
// What a query sees is an array of bytes "rqk", narrowed by one rule after the other.
//
// Contract: computes in f32 (f64 for f64); weights stay unrounded, outputs are divided by their
// sum. RoPE comes from the caller's tables. Query rows are taken in slices of about a million
// scores; a work item is one sequence and key/value head.
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/contract.hpp"
#include "impls/parallel.hpp"
#include "impls/storage.hpp"

namespace attest {
namespace {

constexpr std::int64_t kScoresAtATime = std::int64_t{1} << 20;

/// body(r, i, j, element) for every element of a three-axis array.
template <class T, class Body>
void for_each(Named<T>& array, Body&& body) {
  T* element = array.values.data();
  for (std::int64_t r = 0; r < array.extents[0]; ++r)
    for (std::int64_t i = 0; i < array.extents[1]; ++i)
      for (std::int64_t j = 0; j < array.extents[2]; ++j) body(r, i, j, *element++);
}

/// What one sequence looks like: rows of the tensors and positions.
struct Sequence {
  std::int64_t batch;
  std::int64_t first_query, num_queries, first_key, num_keys;
  std::int64_t offset;  ///< position of the first query
  std::int64_t prefix;
};

class Sequences {
 public:
  Sequences(const attest_attention& p, const Sizes& s) {
    using Ints = TensorView<const std::int32_t>;
    const Ints cu_q(p.cu_seqlens_q), cu_k(p.cu_seqlens_k);
    const Ints pad_q(p.left_pad_q), pad_k(p.left_pad_k), end_q(p.seqlens_q), end_k(p.seqlens_k);
    const Ints q_offset(p.q_offset), prefix(p.prefix_len);
    for (std::int64_t n = 0; n < s.sequences; ++n) {
      Sequence at{};
      std::int64_t last_query = s.q_len, last_key = s.kv_len;
      if (cu_q) {
        at.first_query = cu_q(n), last_query = cu_q(n + 1);
        at.first_key = cu_k(n), last_key = cu_k(n + 1);
      } else {
        at.batch = n;
        if (pad_q) at.first_query = pad_q(n);
        if (pad_k) at.first_key = pad_k(n);
        if (end_q) last_query = end_q(n);
        if (end_k) last_key = end_k(n);
      }
      at.num_queries = last_query - at.first_query;
      at.num_keys = last_key - at.first_key;
      if (at.first_query < 0 || at.num_queries < 0 || last_query > s.q_len || at.first_key < 0 ||
          at.num_keys < 0 || last_key > s.kv_len)
        throw Invalid("lengths, pads or cu_seqlens of sequence " + std::to_string(n));
      at.offset = p.align == ATTEST_ALIGN_Q_OFFSET       ? q_offset(n)
                  : p.align == ATTEST_ALIGN_BOTTOM_RIGHT ? at.num_keys - at.num_queries
                                                         : 0;
      at.prefix = prefix ? prefix(n) : 0;
      all.push_back(at);
    }
  }
  std::vector<Sequence> all;
};

template <class Storage>
class Einsum {
  using C = Compute<Storage>;
  static constexpr C kInfinity = std::numeric_limits<C>::infinity();

  struct Workspace {
    Named<C> queries, keys, values, scores, outputs;
    Named<std::uint8_t> visible, counted;
    std::vector<C> channels, turned, sums;
  };

 public:
  Einsum(const attest_attention& problem, const Sizes& sizes)
      : p(problem), s(sizes), sequences(problem, sizes) {}

  void run(int num_threads) const {
    write_padding();
    parallel_for(s.sequences * s.kv_heads, num_threads, [&](std::int64_t item) {
      thread_local Workspace w;
      const Sequence& at = sequences.all[static_cast<std::size_t>(item / s.kv_heads)];
      const std::int64_t g = item % s.kv_heads;
      if (at.num_queries == 0) return;
      gather_keys(at, g, w);
      const std::int64_t per_row = std::max<std::int64_t>(1, s.group * at.num_keys);
      const std::int64_t slice = std::max<std::int64_t>(1, kScoresAtATime / per_row);
      for (std::int64_t i = 0; i < at.num_queries; i += slice)
        attend(at, g, i, std::min(slice, at.num_queries - i), w);
    });
  }

 private:
  /// x cos + turn(x) sin, where turn maps each pair (x, y) to (-y, x).
  void rotate(C* x, std::int64_t position, Workspace& w) const {
    const std::int64_t half = p.rope_dim / 2, row = position - p.rope_position;
    const TensorView<const C> cosines(p.rope_cos), sines(p.rope_sin);
    C* const turned = scratch(w.turned, p.rope_dim);
    for (std::int64_t c = 0; c < p.rope_dim; ++c) {
      if (p.rope == ATTEST_ROPE_INTERLEAVED)
        turned[c] = c % 2 == 0 ? -x[c + 1] : x[c - 1];
      else
        turned[c] = c < half ? -x[c + half] : x[c - half];
    }
    for (std::int64_t c = 0; c < p.rope_dim; ++c) {
      const std::int64_t t = p.rope == ATTEST_ROPE_INTERLEAVED ? c / 2 : c % half;
      x[c] = x[c] * cosines(row, t) + turned[c] * sines(row, t);
    }
  }

  void gather_keys(const Sequence& at, std::int64_t g, Workspace& w) const {
    const std::int64_t n = at.num_keys;
    w.keys.reset("dk", {s.dim, n});
    w.values.reset("kv", {n, s.v_dim});
    C* const channels = scratch(w.channels, s.dim);
    for (std::int64_t j = 0; j < n; ++j) {
      load_row(row_of<Storage>(p.k, at.batch, g, at.first_key + j), p.k->strides[3], s.dim,
               channels);
      if (p.rope) rotate(channels, j, w);
      for (std::int64_t c = 0; c < s.dim; ++c)
        w.keys.values[static_cast<std::size_t>(c * n + j)] = channels[c];
      load_row(row_of<Storage>(p.v, at.batch, g, at.first_key + j), p.v->strides[3], s.v_dim,
               w.values.values.data() + j * s.v_dim);
    }
  }

  void gather_queries(const Sequence& at, std::int64_t g, std::int64_t begin, std::int64_t count,
                      Workspace& w) const {
    w.queries.reset("rqd", {s.group, count, s.dim});
    C* to = w.queries.values.data();
    for (std::int64_t r = 0; r < s.group; ++r)
      for (std::int64_t i = begin; i < begin + count; ++i, to += s.dim) {
        load_row(row_of<Storage>(p.q, at.batch, g * s.group + r, at.first_query + i),
                 p.q->strides[3], s.dim, to);
        if (p.rope) rotate(to, at.offset + i, w);
      }
  }

  /// The rules of docs/semantics.md section 3, one at a time. Range and segment need none: only the
  /// rows of this sequence are here.
  void mark_visible(const Sequence& at, std::int64_t g, std::int64_t begin, std::int64_t count,
                    Named<std::uint8_t>& visible) const {
    visible.reset("rqk", {s.group, count, at.num_keys});
    std::fill(visible.values.begin(), visible.values.end(), std::uint8_t{1});
    const auto require = [&](auto&& rule) {
      for_each(visible, [&](std::int64_t r, std::int64_t i, std::int64_t kpos, std::uint8_t& sees) {
        if (sees) sees = rule(r, begin + i, at.offset + begin + i, kpos);
      });
    };
    if (p.base == ATTEST_BASE_CAUSAL)
      require([](auto, auto, auto qpos, auto kpos) { return kpos <= qpos; });
    if (p.base == ATTEST_BASE_PREFIX)
      require([&](auto, auto, auto qpos, auto kpos) { return kpos < at.prefix || kpos <= qpos; });
    if (p.window_left >= 0 || p.window_right >= 0)
      require([&](auto, auto, auto qpos, auto kpos) {
        const bool query_is_global = 0 <= qpos && qpos < p.global_tokens;
        const bool key_is_global = kpos < p.global_tokens;
        const bool behind = p.window_left >= 0 && qpos - kpos > p.window_left;
        const bool ahead = p.window_right >= 0 && kpos - qpos > p.window_right;
        return query_is_global || key_is_global || (!behind && !ahead);
      });
    if (p.mask)
      require([&, mask = TensorView<const std::uint8_t>(p.mask)](auto r, auto i, auto, auto kpos) {
        return mask.broadcast(at.batch, g * s.group + r, at.first_query + i, at.first_key + kpos) !=
               0;
      });
    if (p.blocks)
      require([&, map = TensorView<const std::uint8_t>(p.blocks)](auto r, auto i, auto, auto kpos) {
        return map.broadcast(at.batch, g * s.group + r, (at.first_query + i) / p.block_q,
                             (at.first_key + kpos) / p.block_k) != 0;
      });
    if (p.bias)
      require([&, bias = TensorView<const Storage>(p.bias)](auto r, auto i, auto, auto kpos) {
        return widen(bias.broadcast(at.batch, g * s.group + r, at.first_query + i,
                                    at.first_key + kpos)) != -kInfinity;
      });
  }

  /// scores := softcap(scale scores) + ALiBi + bias, the last where visible alone.
  void finish_scores(const Sequence& at, std::int64_t g, std::int64_t begin,
                     const Named<std::uint8_t>& visible, Named<C>& scores) const {
    const auto scale = static_cast<C>(p.scale);
    for (C& z : scores.values) z *= scale;
    const auto add_alibi = [&] {
      const TensorView<const C> slopes(p.alibi_slopes);
      for_each(scores, [&](std::int64_t r, std::int64_t i, std::int64_t kpos, C& z) {
        const std::int64_t h = g * s.group + r, qpos = at.offset + begin + i;
        const C slope = slopes.rank() == 2 ? slopes(at.batch, h) : slopes(h);
        const auto ahead = static_cast<C>(kpos - qpos);
        if (p.alibi == ATTEST_ALIBI_ABSOLUTE) z -= slope * std::abs(ahead);
        if (p.alibi == ATTEST_ALIBI_SIGNED) z += slope * ahead;
        if (p.alibi == ATTEST_ALIBI_KEY_ANCHORED) z += slope * static_cast<C>(kpos);
      });
    };
    if (p.alibi && p.alibi_inside_softcap) add_alibi();
    if (p.softcap > 0) {
      const auto cap = static_cast<C>(p.softcap);
      for (C& z : scores.values) z = cap * std::tanh(z / cap);
    }
    if (p.alibi && !p.alibi_inside_softcap) add_alibi();
    if (p.bias) {
      const TensorView<const Storage> bias(p.bias);
      const std::uint8_t* sees = visible.values.data();
      for_each(scores, [&](std::int64_t r, std::int64_t i, std::int64_t kpos, C& z) {
        if (*sees++)
          z += widen(bias.broadcast(at.batch, g * s.group + r, at.first_query + begin + i,
                                    at.first_key + kpos));
      });
    }
  }

  /// What a row of weights sums to, the sink's share included, and the logarithm of that before the
  /// maximum was taken out.
  struct Total {
    C sum, lse;
  };

  /// One row: scores := exp(scores - max), 0 where not visible.
  Total exponentiate(C* row, const std::uint8_t* sees, std::int64_t n, C sink) const {
    C max = sink;
    for (std::int64_t j = 0; j < n; ++j)
      if (sees[j]) max = std::max(max, row[j]);
    // With a NaN among the scores the sum is NaN, whatever the maximum came to be.
    C sum = sink == -kInfinity ? C{0} : std::exp(sink - max);
    bool empty = true;
    for (std::int64_t j = 0; j < n; ++j) {
      empty = empty && !sees[j];
      row[j] = sees[j] ? std::exp(row[j] - max) : C{0};
      sum += row[j];
    }
    if (empty) return {C{1}, sink};
    return {sum, max + std::log(sum)};
  }

  /// Query rows [begin, begin + count) of the sequence, for all heads that share g.
  void attend(const Sequence& at, std::int64_t g, std::int64_t begin, std::int64_t count,
              Workspace& w) const {
    gather_queries(at, g, begin, count, w);
    mark_visible(at, g, begin, count, w.visible);
    contract("rqd,dk->rqk", w.queries, w.keys, w.scores);
    finish_scores(at, g, begin, w.visible, w.scores);

    const TensorView<const C> sinks(p.sink);
    const TensorView<C> lse(p.lse);
    const std::int64_t n = at.num_keys;
    C* const sums = scratch(w.sums, s.group * count);
    for (std::int64_t r = 0; r < s.group; ++r)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t h = g * s.group + r, row = (r * count + i) * n;
        const Total total =
            exponentiate(w.scores.values.data() + row, w.visible.values.data() + row, n,
                         sinks ? sinks(h) : -kInfinity);
        sums[r * count + i] = total.sum;
        if (lse) lse(at.batch, h, at.first_query + begin + i) = total.lse;
      }

    if (p.keep) {
      const TensorView<const std::uint8_t> keep(p.keep);
      const auto kept = static_cast<C>(1 / (1 - p.dropout_p));
      for (C& weight : w.scores.values) weight *= kept;
      for_each(w.visible, [&](std::int64_t r, std::int64_t i, std::int64_t kpos, std::uint8_t& on) {
        if (on)
          on = keep(at.batch, g * s.group + r, at.first_query + begin + i, at.first_key + kpos);
      });
    }
    contract("rqk,kv->rqv", w.scores, w.values, w.outputs, &w.visible);
    for_each(w.outputs, [&](std::int64_t r, std::int64_t i, std::int64_t c, C value) {
      output_row<Storage>(p.o, at.batch, g * s.group + r,
                          at.first_query + begin + i)[c * p.o->strides[3]] =
          narrow<Storage>(value / sums[r * count + i]);
    });
  }

  /// Query rows of no sequence: o = 0, lse = -inf.
  void write_padding() const {
    std::vector<std::uint8_t> real(static_cast<std::size_t>(s.batch * s.q_len));
    for (const Sequence& at : sequences.all)
      std::fill_n(real.begin() + at.batch * s.q_len + at.first_query, at.num_queries,
                  std::uint8_t{1});
    for (std::int64_t row = 0; row < s.batch * s.q_len; ++row) {
      if (real[static_cast<std::size_t>(row)]) continue;
      const std::int64_t b = row / s.q_len, i = row % s.q_len;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        Storage* const to = output_row<Storage>(p.o, b, h, i);
        for (std::int64_t c = 0; c < s.v_dim; ++c) to[c * p.o->strides[3]] = narrow<Storage>(0);
        if (p.lse) TensorView<C>(p.lse)(b, h, i) = -kInfinity;
      }
    }
  }

  const attest_attention& p;
  const Sizes s;
  const Sequences sequences;
};

class EinsumKernel : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    const Sizes sizes = read_sizes(problem);
    with_storage(sizes.dtype, [&](auto storage) {
      Einsum<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
};
ATTEST_PLUGIN(EinsumKernel, "einsum", "1.0",
              "dtype=f64,f32,f16,bf16 features=all "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
