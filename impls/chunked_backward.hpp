// SPDX-License-Identifier: Apache-2.0
// Backward of `chunked`, as in FlashAttention: nothing of the size queries x keys exists. For each
// block of 64 keys every query row that sees some of it computes its logits again, and its weights
// from the lse that forward wrote (or, without one, from an online softmax that comes first).
// delta_i = dO_i . o_i replaces a sum over keys. A work item is one sequence and key/value head,
// and owns dK, dV and the dQ of its query heads. dBias has a pass of its own, in which an item owns
// a tile of its rows and visits every head and sequence that reads them.
//
// Contract: computes in f32 (f64 for f64). For f16 and bf16 f P and dS are rounded to the storage
// type before they enter a product. Gradients of parameters add unrounded dS in double. Beyond the
// tensors of the call an item holds q, dQ and dO of its query rows, dK and dV of its key rows, or
// 32 rows of dBias: 13 MiB for f32, 8192 rows and 64 channels.
#pragma once

#include <bit>
#include <vector>

#include "impls/chunked.hpp"
#include "impls/parallel.hpp"

namespace attest::chunked {

/// What backward knows of one query row.
template <class C>
struct BackwardRow {
  C lse, d_lse, delta;
  bool seen = false;   ///< met a key
  double d_slope = 0;  ///< its part of the gradient of the head's ALiBi slope
};

/// A row and a block of keys: f P, dZ, and d / d (scale q.k).
template <class C>
struct PairGradients {
  C p_kept[kBlock], d_z[kBlock], d_s[kBlock];
};

template <class C>
struct BackwardWorkspace : Workspace<C> {
  std::vector<BackwardRow<C>> gradients;
  std::vector<C> d_o, d_q, d_k, d_v;
  std::vector<double> d_bias;
};

template <class Storage>
class Backward : Call<Storage> {
  using Base = Call<Storage>;
  using Base::p_, Base::s_, Base::kNone;
  using typename Base::C;

 public:
  using Base::Base;

  void run(int num_threads) const {
    for (const DLTensor* gradient : {p_.d_q, p_.d_k, p_.d_v})
      if (gradient) write_zeros<Storage>(gradient);  // padding rows, keys outside every range
    std::vector<double> d_slope(static_cast<std::size_t>(s_.sequences * s_.heads));
    std::vector<double> d_sink = d_slope;
    if (p_.d_q || p_.d_k || p_.d_v || p_.d_alibi_slopes || p_.d_sink)
      parallel_for(s_.sequences * s_.kv_heads, num_threads, [&](std::int64_t item) {
        const std::int64_t sequence = item / s_.kv_heads, g = item % s_.kv_heads;
        const Ranges at = this->ranges(sequence);
        differentiate({at, g, g * s_.group, (g + 1) * s_.group, 0, at.queries}, workspace(),
                      d_slope.data() + sequence * s_.heads, d_sink.data() + sequence * s_.heads);
      });
    if (p_.d_bias) {
      const std::int64_t tiles = (p_.d_bias->shape[2] + kTile - 1) / kTile;
      const std::int64_t heads = p_.d_bias->shape[1];
      parallel_for(p_.d_bias->shape[0] * heads * tiles, num_threads, [&](std::int64_t item) {
        const std::int64_t plane = item / tiles;
        bias_tile(plane / heads, plane % heads, item % tiles * kTile, workspace());
      });
    }
    std::vector<std::int64_t> batch_of;
    for (std::int64_t n = 0; n < s_.sequences; ++n) batch_of.push_back(this->ranges(n).b);
    if (p_.d_alibi_slopes) sum_per_head<C>(d_slope, batch_of, p_.d_alibi_slopes);
    if (p_.d_sink) sum_per_head<C>(d_sink, batch_of, p_.d_sink);
  }

 private:
  static BackwardWorkspace<C>& workspace() {
    thread_local BackwardWorkspace<C> mine;
    return mine;
  }

  /// dO.o, in which a channel whose dO is 0 counts nothing, whatever its o.
  C delta_of(const Storage* o, const C* d_o) const {
    C delta = 0;
    for (std::int64_t c = 0; c < s_.v_dim; ++c)
      if (d_o[c] != 0) delta += d_o[c] * widen(o[c * p_.o->strides[3]]);
    return delta;
  }

  /// Everything that the rows of the span need before they meet keys. A row whose dO and dLSE are 0
  /// looks nowhere: it adds exactly 0.
  void load_rows(const Span& span, BackwardWorkspace<C>& w) const {
    this->load_queries(span, w);
    BackwardRow<C>* const rows = scratch(w.gradients, span.rows());
    C* const d_o = scratch(w.d_o, span.rows() * s_.v_dim);
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const std::int64_t b = span.at.b, h = span.head(n), i = span.at.q0 + span.query(n);
      C* const row = d_o + n * s_.v_dim;
      load_row(row_of<Storage>(p_.d_o, b, h, i), p_.d_o->strides[3], s_.v_dim, row);
      rows[n] = {};
      rows[n].delta = delta_of(row_of<Storage>(p_.o, b, h, i), row);
      rows[n].d_lse = p_.d_lse ? TensorView<const C>(p_.d_lse)(b, h, i) : C{0};
      const bool silent = std::all_of(row, row + s_.v_dim, [](C x) { return x == 0; });
      if (silent && rows[n].d_lse == 0) w.looks[static_cast<std::size_t>(n)] = {};
      if (p_.lse) rows[n].lse = TensorView<const C>(p_.lse)(b, h, i);
    }
    if (p_.lse) return;
    this->meet_sinks(span, w);
    this->walk(span, w, [&](std::int64_t n, Scores<C>& scores) {
      Base::absorb(scores, w.rows[static_cast<std::size_t>(n)]);
    });
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const Softmax<C>& row = w.rows[static_cast<std::size_t>(n)];
      rows[n].lse = row.max + log(row.sum);
    }
  }

  /// Row n of the span with the loaded block, whose logits are given.
  void pair_gradients(const Span& span, std::int64_t n, const Scores<C>& scores,
                      BackwardWorkspace<C>& w, PairGradients<C>& pairs) const {
    const TensorView<const std::uint8_t> keep(p_.keep);
    const auto kept = static_cast<C>(1 / (1 - p_.dropout_p));
    const std::int64_t h = span.head(n), i = span.query(n);
    const C* const d_o = w.d_o.data() + n * s_.v_dim;
    BackwardRow<C>& row = w.gradients[static_cast<std::size_t>(n)];
    row.seen = true;
    C d_slope = 0;
    for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      const std::int64_t key = scores.first + bit;
      const bool dropped = keep && !keep(span.at.b, h, span.at.q0 + i, span.at.k0 + key);
      const C factor = !keep ? C{1} : dropped ? C{0} : kept;
      const C weight = exp(scores.z[bit] - row.lse);
      // A dropped key's value counts nothing, not even where it is NaN.
      const C d_p = dropped ? C{0} : factor * dot(d_o, w.values.data() + bit * s_.v_dim, s_.v_dim);
      const C d_z = weight * (d_p - row.delta + row.d_lse);
      const C d_s = d_z * scores.slope[bit];
      d_slope += (p_.alibi_inside_softcap ? d_s : d_z) *
                 this->alibi_distance(key - i - span.at.offset, key);
      pairs.p_kept[bit] = rounded<Storage>(factor * weight);
      pairs.d_z[bit] = d_z;
      pairs.d_s[bit] = rounded<Storage>(d_s);
    }
    row.d_slope += static_cast<double>(d_slope);
  }

  /// dQ, dK and dV of one sequence and key/value head, and what each query head adds to d_slope and
  /// d_sink, at [h].
  void differentiate(const Span& span, BackwardWorkspace<C>& w, double* d_slope,
                     double* d_sink) const {
    load_rows(span, w);
    w.d_q.assign(static_cast<std::size_t>(span.rows() * s_.dim), C{0});
    w.d_k.assign(static_cast<std::size_t>(span.at.keys * s_.dim), C{0});
    w.d_v.assign(static_cast<std::size_t>(span.at.keys * s_.v_dim), C{0});
    PairGradients<C> pairs;
    this->walk(span, w, [&](std::int64_t n, Scores<C>& scores) {
      pair_gradients(span, n, scores, w, pairs);
      for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
        const int bit = std::countr_zero(todo);
        const std::int64_t key = scores.first + bit;
        add_multiple(pairs.d_s[bit], w.keys.data() + bit * s_.dim, s_.dim,
                     w.d_q.data() + n * s_.dim);
        add_multiple(pairs.d_s[bit], w.queries.data() + n * s_.dim, s_.dim,
                     w.d_k.data() + key * s_.dim);
        add_multiple(pairs.p_kept[bit], w.d_o.data() + n * s_.v_dim, s_.v_dim,
                     w.d_v.data() + key * s_.v_dim);
      }
    });
    write(span, w);
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const std::int64_t h = span.head(n);
      const BackwardRow<C>& row = w.gradients[static_cast<std::size_t>(n)];
      d_slope[h] += row.d_slope;
      const C sink = p_.sink ? TensorView<const C>(p_.sink)(h) : kNone;
      if (sink == kNone) continue;
      // An empty row is all sink, and its o may be anything.
      d_sink[h] +=
          static_cast<double>(row.seen ? exp(sink - row.lse) * (row.d_lse - row.delta) : row.d_lse);
    }
  }

  /// Turns `row` back from its position and writes it.
  void write_turned(C* row, std::int64_t position, const DLTensor* to, std::int64_t b,
                    std::int64_t h, std::int64_t i) const {
    if (p_.rope) this->rotate(row, position, -1);
    store_row(row, static_cast<C>(p_.scale), s_.dim, output_row<Storage>(to, b, h, i),
              to->strides[3]);
  }

  void write(const Span& span, BackwardWorkspace<C>& w) const {
    const Ranges& at = span.at;
    for (std::int64_t n = 0; p_.d_q && n < span.rows(); ++n)
      write_turned(w.d_q.data() + n * s_.dim, span.query(n) + at.offset, p_.d_q, at.b, span.head(n),
                   at.q0 + span.query(n));
    for (std::int64_t j = 0; p_.d_k && j < at.keys; ++j)
      write_turned(w.d_k.data() + j * s_.dim, j, p_.d_k, at.b, span.g, at.k0 + j);
    for (std::int64_t j = 0; p_.d_v && j < at.keys; ++j)
      store_row(w.d_v.data() + j * s_.v_dim, C{1}, s_.v_dim,
                output_row<Storage>(p_.d_v, at.b, span.g, at.k0 + j), p_.d_v->strides[3]);
  }

  /// Rows [first, first + 32) of dBias[b, h]: the sum of dZ over all that read them.
  void bias_tile(std::int64_t b, std::int64_t h, std::int64_t first,
                 BackwardWorkspace<C>& w) const {
    const std::int64_t* const shape = p_.d_bias->shape;
    const std::int64_t last = std::min(first + kTile, shape[2]);
    w.d_bias.assign(static_cast<std::size_t>((last - first) * shape[3]), 0);
    for (std::int64_t sequence = 0; sequence < s_.sequences; ++sequence) {
      Span span{this->ranges(sequence), 0, 0, 0, 0, 0};
      if (shape[0] != 1 && span.at.b != b) continue;
      span.begin = shape[2] == 1 ? 0 : std::max<std::int64_t>(first - span.at.q0, 0);
      span.end = shape[2] == 1 ? span.at.queries : std::min(last - span.at.q0, span.at.queries);
      if (span.begin >= span.end) continue;
      for (span.g = 0; span.g < s_.kv_heads; ++span.g) {
        span.first_head = shape[1] == 1 ? span.g * s_.group : h;
        span.last_head = shape[1] == 1 ? span.first_head + s_.group : h + 1;
        if (shape[1] == 1 || h / s_.group == span.g) add_bias(span, first, w);
      }
    }
    for (std::int64_t i = first; i < last; ++i)
      for (std::int64_t j = 0; j < shape[3]; ++j) {
        const auto at = static_cast<std::size_t>((i - first) * shape[3] + j);
        output_row<Storage>(p_.d_bias, b, h, i)[j * p_.d_bias->strides[3]] =
            narrow<Storage>(static_cast<C>(w.d_bias[at]));
      }
  }

  /// Adds the dZ of the span's rows to the tile of dBias that starts at row `first`.
  void add_bias(const Span& span, std::int64_t first, BackwardWorkspace<C>& w) const {
    const std::int64_t* const shape = p_.d_bias->shape;
    load_rows(span, w);
    PairGradients<C> pairs;
    this->walk(span, w, [&](std::int64_t n, Scores<C>& scores) {
      pair_gradients(span, n, scores, w, pairs);
      const std::int64_t row = shape[2] == 1 ? 0 : span.at.q0 + span.query(n) - first;
      for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
        const int bit = std::countr_zero(todo);
        const std::int64_t column = shape[3] == 1 ? 0 : span.at.k0 + scores.first + bit;
        w.d_bias[static_cast<std::size_t>(row * shape[3] + column)] +=
            static_cast<double>(pairs.d_z[bit]);
      }
    });
  }
};

}  // namespace attest::chunked
