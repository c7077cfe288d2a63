// SPDX-License-Identifier: Apache-2.0
// Backward of `naive`: the textbook again. For each query head the whole matrices P, dP and dS are
// formed, [rows, keys] each; the gradients are their products with Q, K and dO. Softmax is computed
// anew from the scores, so that neither o nor lse is read.
//
// Contract: computes in f32 (f64 for f64), P and dS too. Gradients of parameters add dS in double.
#pragma once

#include <limits>
#include <vector>

#include "impls/naive.hpp"
#include "impls/parallel.hpp"

namespace attest::naive {

/// One query head of one sequence. Matrices are row-major, [rows, keys]; where a pair is not `seen`
/// their entries mean nothing.
template <class C>
struct Head {
  std::int64_t rows, keys;
  std::vector<C> q, d_o;           // [rows, D] turned to positions, [rows, Dv]
  std::vector<C> k, v;             // [keys, D] turned to positions, [keys, Dv]
  std::vector<std::uint8_t> seen;  // visible, bias above -inf, and the row has a gradient
  std::vector<C> p_kept;           // f P, as the product with dO takes it
  std::vector<C> d_z;              // d / d score
  std::vector<C> d_s;              // d / d (scale q.k), as the products with Q and K take it
  double d_slope, d_sink;
};

/// out[m, n] = a[m, depth] b[n, depth]^T. The transposed copy makes the inner loop one over
/// columns.
template <class C>
void multiply_transposed(const std::vector<C>& a, const std::vector<C>& b, std::int64_t m,
                         std::int64_t n, std::int64_t depth, std::vector<C>& out) {
  thread_local std::vector<C> buffer;
  C* const columns = scratch(buffer, depth * n);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t c = 0; c < depth; ++c)
      columns[c * n + j] = b[static_cast<std::size_t>(j * depth + c)];
  out.assign(static_cast<std::size_t>(m * n), C{0});
  for (std::int64_t i = 0; i < m; ++i) {
    C* const __restrict row = out.data() + i * n;
    for (std::int64_t c = 0; c < depth; ++c) {
      const C x = a[static_cast<std::size_t>(i * depth + c)];
      const C* const __restrict column = columns + c * n;
      for (std::int64_t j = 0; j < n; ++j) row[j] += x * column[j];
    }
  }
}

template <class C>
void add_multiple(C factor, const C* __restrict x, std::int64_t n, C* __restrict to) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * x[c];
}

template <class Storage>
struct Backward : Call<Storage> {
  using Base = Call<Storage>;
  using Base::Base;
  using Base::p, Base::s, Base::keep, Base::sink;
  using typename Base::C;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

  const TensorView<const C> d_lse{p.d_lse};
  std::vector<Sequence> sequences = sequences_of(p, s);

  /// Queries, keys, values and dO of query head h.
  void load(const Sequence& at, std::int64_t h, Head<C>& head) const {
    head.rows = at.q1 - at.q0, head.keys = at.k1 - at.k0;
    head.q.resize(static_cast<std::size_t>(head.rows * s.dim));
    head.d_o.resize(static_cast<std::size_t>(head.rows * s.v_dim));
    head.k.resize(static_cast<std::size_t>(head.keys * s.dim));
    head.v.resize(static_cast<std::size_t>(head.keys * s.v_dim));
    for (std::int64_t i = at.q0; i < at.q1; ++i) {
      this->load_query(at, h, i, head.q.data() + (i - at.q0) * s.dim);
      load_row(row_of<Storage>(p.d_o, at.b, h, i), p.d_o->strides[3], s.v_dim,
               head.d_o.data() + (i - at.q0) * s.v_dim);
    }
    this->load_keys(at, h / s.group, head.k.data());
    for (std::int64_t j = at.k0; j < at.k1; ++j)
      load_row(row_of<Storage>(p.v, at.b, h / s.group, j), p.v->strides[3], s.v_dim,
               head.v.data() + (j - at.k0) * s.v_dim);
  }

  /// Whether dO_i and dLSE_i are 0: such a row adds exactly 0, also where 0 * Inf would be NaN.
  bool without_gradient(const C* d_o, C d_lse_i) const {
    for (std::int64_t c = 0; c < s.v_dim; ++c)
      if (d_o[c] != 0) return false;
    return d_lse_i == 0;
  }

  /// f: 0 for a dropped pair.
  C keep_factor(const Sequence& at, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!keep) return 1;
    return keep(at.b, h, i, j) ? static_cast<C>(1 / (1 - p.dropout_p)) : C{0};
  }

  /// Row i of the matrices. On entry q.k stands in p_kept and dO.v in d_z.
  void differentiate(const Sequence& at, std::int64_t h, std::int64_t i, Head<C>& head) const {
    const std::int64_t n = head.keys;
    const auto first = static_cast<std::size_t>((i - at.q0) * n);
    std::uint8_t* const seen = head.seen.data() + first;
    C* const weights = head.p_kept.data() + first;
    C* const d_z = head.d_z.data() + first;
    C* const d_s = head.d_s.data() + first;
    const C d_lse_i = d_lse ? d_lse(at.b, h, i) : C{0};
    const C* const d_o = head.d_o.data() + (i - at.q0) * s.v_dim;
    if (without_gradient(d_o, d_lse_i)) return;

    C max = kNone;
    for (std::int64_t j = 0; j < n; ++j) {
      if (!this->visible(at, h, i, at.k0 + j)) continue;
      const auto score = this->score(at, h, i, at.k0 + j, weights[j]);
      if (score.z == kNone) continue;
      seen[j] = 1;
      weights[j] = score.z;
      d_s[j] = score.slope;
      if (score.z > max) max = score.z;
    }
    const C extra = sink ? sink(h) : kNone;
    if (extra > max) max = extra;
    C sum = exp(extra - max);  // 0 without a sink; an empty row has no use for it
    for (std::int64_t j = 0; j < n; ++j)
      if (seen[j]) sum += weights[j] = exp(weights[j] - max);

    // What a dropped value gives whatever it is: 0, and NaN where dO is.
    C nothing = 0;
    for (std::int64_t c = 0; c < s.v_dim; ++c) nothing += 0 * d_o[c];
    C delta = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      if (!seen[j]) continue;
      weights[j] /= sum;
      const C factor = keep_factor(at, h, i, at.k0 + j);
      d_z[j] = factor == 0 ? nothing : factor * d_z[j];  // dP
      delta += weights[j] * d_z[j];
    }
    for (std::int64_t j = 0; j < n; ++j) {
      if (!seen[j]) continue;
      d_z[j] = weights[j] * (d_z[j] - delta + d_lse_i);
      const C d_a = d_z[j] * d_s[j];
      if (p.alibi)
        head.d_slope += static_cast<double>(p.alibi_inside_softcap ? d_a : d_z[j]) *
                        static_cast<double>(this->alibi_distance(at, i, at.k0 + j));
      weights[j] *= keep_factor(at, h, i, at.k0 + j);
      d_s[j] = d_a;
    }
    if (extra != kNone)
      head.d_sink += static_cast<double>(exp(extra - max) / sum * (d_lse_i - delta));
  }

  /// All matrices of query head h.
  void form(const Sequence& at, std::int64_t h, Head<C>& head) const {
    load(at, h, head);
    multiply_transposed(head.q, head.k, head.rows, head.keys, s.dim, head.p_kept);
    multiply_transposed(head.d_o, head.v, head.rows, head.keys, s.v_dim, head.d_z);
    head.d_s.resize(head.d_z.size());
    head.seen.assign(head.d_z.size(), 0);
    head.d_slope = head.d_sink = 0;
    for (std::int64_t i = at.q0; i < at.q1; ++i) differentiate(at, h, i, head);
  }

  /// dQ = scale dS K.
  void write_d_q(const Sequence& at, std::int64_t h, const Head<C>& head) const {
    std::vector<C> sum(static_cast<std::size_t>(s.dim));
    for (std::int64_t i = 0; i < head.rows; ++i) {
      std::fill(sum.begin(), sum.end(), C{0});
      for (std::int64_t j = 0; j < head.keys; ++j) {
        const auto pair = static_cast<std::size_t>(i * head.keys + j);
        if (head.seen[pair])
          add_multiple(head.d_s[pair], head.k.data() + j * s.dim, s.dim, sum.data());
      }
      if (p.rope) this->rotate(sum.data(), i + at.offset, -1);
      store_row(sum.data(), static_cast<C>(p.scale), s.dim,
                output_row<Storage>(p.d_q, at.b, h, at.q0 + i), p.d_q->strides[3]);
    }
  }

  /// to[keys, n] += weights^T rows[rows, n] over the pairs that are seen.
  static void add_columns(const Head<C>& head, const std::vector<C>& weights,
                          const std::vector<C>& rows, std::int64_t n, std::vector<C>& to) {
    for (std::int64_t i = 0; i < head.rows; ++i)
      for (std::int64_t j = 0; j < head.keys; ++j) {
        const auto pair = static_cast<std::size_t>(i * head.keys + j);
        if (head.seen[pair]) add_multiple(weights[pair], rows.data() + i * n, n, to.data() + j * n);
      }
  }

  /// dK and dV of key/value head g, dQ of the query heads that share it, and what each of them adds
  /// to d_slope and d_sink, at [h].
  void group(const Sequence& at, std::int64_t g, double* d_slope, double* d_sink) const {
    thread_local Head<C> head;
    std::vector<C> d_k(static_cast<std::size_t>((at.k1 - at.k0) * s.dim));
    std::vector<C> d_v(static_cast<std::size_t>((at.k1 - at.k0) * s.v_dim));
    for (std::int64_t h = g * s.group; h < (g + 1) * s.group; ++h) {
      form(at, h, head);
      if (p.d_q) write_d_q(at, h, head);
      if (p.d_k) add_columns(head, head.d_s, head.q, s.dim, d_k);
      if (p.d_v) add_columns(head, head.p_kept, head.d_o, s.v_dim, d_v);
      d_slope[h] = head.d_slope;
      d_sink[h] = head.d_sink;
    }
    for (std::int64_t j = 0; j < at.k1 - at.k0; ++j) {
      C* const row = d_k.data() + j * s.dim;
      if (p.d_k && p.rope) this->rotate(row, j, -1);
      if (p.d_k)
        store_row(row, static_cast<C>(p.scale), s.dim,
                  output_row<Storage>(p.d_k, at.b, g, at.k0 + j), p.d_k->strides[3]);
      if (p.d_v)
        store_row(d_v.data() + j * s.v_dim, C{1}, s.v_dim,
                  output_row<Storage>(p.d_v, at.b, g, at.k0 + j), p.d_v->strides[3]);
    }
  }

  /// dBias[b, h, :, :], the sum of dZ over every head that reads it. One thread owns it all.
  void bias_plane(std::int64_t b, std::int64_t h) const {
    thread_local Head<C> head;
    const std::int64_t* const shape = p.d_bias->shape;
    std::vector<double> sums(static_cast<std::size_t>(shape[2] * shape[3]));
    for (const Sequence& at : sequences) {
      if (shape[0] != 1 && at.b != b) continue;
      for (std::int64_t reader = 0; reader < s.heads; ++reader) {
        if (shape[1] != 1 && reader != h) continue;
        form(at, reader, head);
        for (std::int64_t i = 0; i < head.rows; ++i)
          for (std::int64_t j = 0; j < head.keys; ++j) {
            const std::int64_t row = shape[2] == 1 ? 0 : at.q0 + i;
            const std::int64_t column = shape[3] == 1 ? 0 : at.k0 + j;
            const auto pair = static_cast<std::size_t>(i * head.keys + j);
            if (head.seen[pair])
              sums[static_cast<std::size_t>(row * shape[3] + column)] +=
                  static_cast<double>(head.d_z[pair]);
          }
      }
    }
    for (std::int64_t i = 0; i < shape[2]; ++i)
      for (std::int64_t j = 0; j < shape[3]; ++j)
        output_row<Storage>(p.d_bias, b, h, i)[j * p.d_bias->strides[3]] =
            narrow<Storage>(static_cast<C>(sums[static_cast<std::size_t>(i * shape[3] + j)]));
  }

  void run(int num_threads) const {
    for (const DLTensor* gradient : {p.d_q, p.d_k, p.d_v})
      if (gradient) write_zeros<Storage>(gradient);  // padding rows, keys outside every range
    std::vector<double> d_slope(static_cast<std::size_t>(s.sequences * s.heads)), d_sink = d_slope;
    if (p.d_q || p.d_k || p.d_v || p.d_alibi_slopes || p.d_sink)
      parallel_for(s.sequences * s.kv_heads, num_threads, [&](std::int64_t item) {
        const std::int64_t n = item / s.kv_heads;
        group(sequences[static_cast<std::size_t>(n)], item % s.kv_heads,
              d_slope.data() + n * s.heads, d_sink.data() + n * s.heads);
      });
    if (p.d_bias)
      parallel_for(p.d_bias->shape[0] * p.d_bias->shape[1], num_threads, [&](std::int64_t plane) {
        bias_plane(plane / p.d_bias->shape[1], plane % p.d_bias->shape[1]);
      });
    std::vector<std::int64_t> batch_of;
    for (const Sequence& at : sequences) batch_of.push_back(at.b);
    if (p.d_alibi_slopes) sum_per_head<C>(d_slope, batch_of, p.d_alibi_slopes);
    if (p.d_sink) sum_per_head<C>(d_sink, batch_of, p.d_sink);
  }
};

}  // namespace attest::naive
