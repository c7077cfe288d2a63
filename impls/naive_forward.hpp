// SPDX-License-Identifier: Apache-2.0
// Forward of `naive`: the textbook, one matrix after the other. For each block of query rows the
// whole score matrix [rows, kv_len] is materialised: products, then scores, then weights, then the
// weighted sum of V. Whether a query sees a key is asked pair by pair.
//
// Contract: computes in f32 (f64 for f64); weights stay unrounded and unnormalised, the row is
// divided by its sum at the end. RoPE comes from the caller's tables. A work item is one sequence
// and key/value head.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "impls/naive.hpp"
#include "impls/parallel.hpp"

namespace attest::naive {

inline constexpr std::int64_t kRows = 64;  // of the score matrix at a time: 1 MiB at 4096 keys

template <class Storage>
struct Forward : Call<Storage> {
  using Base = Call<Storage>;
  using Base::Base;
  using Base::p, Base::s, Base::keep, Base::sink;
  using typename Base::C;

  const TensorView<C> lse{p.lse};

  /// Query rows [begin, end) of head h. `keys` is [D, n], `values` [n, Dv].
  void rows(const Sequence& at, std::int64_t h, std::int64_t begin, std::int64_t end, const C* keys,
            const C* values) const {
    static constexpr C kNone = -std::numeric_limits<C>::infinity();
    thread_local std::vector<C> score_buffer, query_buffer, output_buffer;
    const std::int64_t n = at.k1 - at.k0;
    C* const scores = scratch(score_buffer, kRows * n);
    C* const query = scratch(query_buffer, s.dim);
    C* const output = scratch(output_buffer, s.v_dim);

    for (std::int64_t i = begin; i < end; ++i) {
      C* const __restrict row = scores + (i - begin) * n;
      this->load_query(at, h, i, query);
      std::fill(row, row + n, C{0});
      for (std::int64_t c = 0; c < s.dim; ++c) {
        const C x = query[c];
        const C* const __restrict channel = keys + c * n;
        for (std::int64_t j = 0; j < n; ++j) row[j] += x * channel[j];
      }
    }

    for (std::int64_t i = begin; i < end; ++i) {
      C* const row = scores + (i - begin) * n;
      C max = kNone;
      bool empty = true;
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] =
            this->visible(at, h, i, at.k0 + j) ? this->score(at, h, i, at.k0 + j, row[j]).z : kNone;
        if (row[j] > max) max = row[j];
        if (row[j] != kNone) empty = false;  // also where it is NaN, which then comes out below
      }
      const C extra = sink ? sink(h) : kNone;
      if (extra > max) max = extra;
      C sum = exp(extra - max);  // 0 without a sink; an empty row has no use for it
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] = row[j] == kNone ? C{0} : exp(row[j] - max);
        sum += row[j];
      }
      if (lse) lse(at.b, h, i) = empty ? extra : max + log(sum);

      std::fill(output, output + s.v_dim, C{0});
      const auto kept = static_cast<C>(1 / (1 - p.dropout_p));
      for (std::int64_t j = 0; j < n; ++j) {
        C weight = row[j];
        if (keep) weight = keep(at.b, h, i, at.k0 + j) ? weight * kept : C{0};
        if (weight == 0) continue;  // 0 * NaN would let a key through that this row does not see
        const C* const __restrict value = values + j * s.v_dim;
        for (std::int64_t c = 0; c < s.v_dim; ++c) output[c] += weight * value[c];
      }
      Storage* const to = output_row<Storage>(p.o, at.b, h, i);
      for (std::int64_t c = 0; c < s.v_dim; ++c)
        to[c * p.o->strides[3]] = narrow<Storage>(empty ? C{0} : output[c] / sum);
    }
  }

  /// All query heads of one sequence that share key/value head g.
  void group(const Sequence& at, std::int64_t g) const {
    thread_local std::vector<C> row_buffer, key_buffer, value_buffer;
    const std::int64_t n = at.k1 - at.k0;
    if (at.q0 == at.q1) return;
    C* const keys = scratch(key_buffer, s.dim * n);
    C* const values = scratch(value_buffer, n * s.v_dim);
    C* const rows_of_keys = scratch(row_buffer, n * s.dim);
    this->load_keys(at, g, rows_of_keys);
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t c = 0; c < s.dim; ++c) keys[c * n + j] = rows_of_keys[j * s.dim + c];
      load_row(row_of<Storage>(p.v, at.b, g, at.k0 + j), p.v->strides[3], s.v_dim,
               values + j * s.v_dim);
    }
    for (std::int64_t h = g * s.group; h < (g + 1) * s.group; ++h)
      for (std::int64_t i = at.q0; i < at.q1; i += kRows)
        rows(at, h, i, std::min(i + kRows, at.q1), keys, values);
  }

  /// What padding rows keep: o = 0, lse = -inf.
  void clear() const {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.q_len; ++i) {
          Storage* const to = output_row<Storage>(p.o, b, h, i);
          for (std::int64_t c = 0; c < s.v_dim; ++c) to[c * p.o->strides[3]] = narrow<Storage>(0);
          if (lse) lse(b, h, i) = -std::numeric_limits<C>::infinity();
        }
  }

  void run(int num_threads) const {
    const std::vector<Sequence> sequences = sequences_of(p, s);
    if (p.seqlens_q || p.left_pad_q || p.cu_seqlens_q) clear();
    parallel_for(s.sequences * s.kv_heads, num_threads, [&](std::int64_t item) {
      group(sequences[static_cast<std::size_t>(item / s.kv_heads)], item % s.kv_heads);
    });
  }
};

}  // namespace attest::naive
