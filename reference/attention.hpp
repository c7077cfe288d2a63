// SPDX-License-Identifier: Apache-2.0
// The definition of attention on a number type: docs/semantics.md section 2, step by step, one
// query row at a time. Dull on purpose. Instantiated in definition.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/number.hpp"
#include "reference/row_kind.hpp"
#include "reference/score.hpp"
#include "reference/visible.hpp"

namespace attest {

/// One row of the output, and P_ij of steps 5 and 6 for the keys with a score.
template <Number T>
struct ForwardRow {
  RowKind kind = RowKind::ordinary;
  std::vector<T> o;  ///< [Dv]
  T lse;
  std::vector<std::int64_t> keys;  ///< visible, bias > -inf
  std::vector<T> weights;          ///< P_ij of each
};

/// f_ij of step 7: keep_ij / (1 - p_drop), 1 without dropout.
template <Number T>
T keep_factor(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
              std::int64_t h, std::int64_t i, std::int64_t j) {
  if (!inputs.keep.present) return T(1.0);
  if (inputs.keep.at(b, h, i, j) == 0) return T(0.0);
  return T(1.0) / (T(1.0) - T(problem.dropout_p));
}

/// The mean of v over the real key rows of query row i's segment; 0 where there is none.
template <Number T, class V>
std::vector<T> mean_value(const AttentionProblem& problem, const RealTensors<V>& inputs,
                          const Segment& segment, std::int64_t b, std::int64_t h) {
  std::vector<T> mean(static_cast<std::size_t>(problem.v_head_dim), T(0.0));
  for (std::int64_t j = segment.k0; j < segment.k1; ++j) {
    const std::vector<T> v = read_row<T>(inputs.v, b, kv_head(problem, h), j);
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += v[c];
  }
  if (segment.k1 > segment.k0)
    for (T& x : mean) x = x / T(static_cast<double>(segment.k1 - segment.k0));
  return mean;
}

/// An empty row without a sink: the convention of the problem. `unspecified` gives 0, not judged.
template <Number T, class V>
void fill_empty(const AttentionProblem& problem, const RealTensors<V>& inputs,
                const Segment& segment, std::int64_t b, std::int64_t h, ForwardRow<T>& row) {
  switch (problem.empty_output) {
    case EmptyOutput::zero:
    case EmptyOutput::unspecified: break;
    case EmptyOutput::nan: std::fill(row.o.begin(), row.o.end(), quiet_nan<T>()); break;
    case EmptyOutput::mean_v: row.o = mean_value<T>(problem, inputs, segment, b, h); break;
  }
  switch (problem.empty_lse) {
    case EmptyLse::neg_inf: row.lse = -infinity<T>(); break;
    case EmptyLse::pos_inf: row.lse = infinity<T>(); break;
    case EmptyLse::zero:
    case EmptyLse::unspecified: row.lse = T(0.0); break;
  }
}

/// Row (b, h, i). A row with a NaN or Inf that counts is NaN throughout and `unspecified`.
/// `values` holds the numbers, and `inputs` says what is there: the same ones, unless the function
/// is followed away from the given point.
template <Number T, class V>
ForwardRow<T> forward_row(const AttentionProblem& problem, const AttentionInputs& inputs,
                          const RealTensors<V>& values, const Rows& rows, std::int64_t b,
                          std::int64_t h, std::int64_t i) {
  using std::exp, std::log;
  const std::vector<std::int64_t> visible = visible_keys(problem, inputs, rows, b, h, i);

  ForwardRow<T> row;
  row.kind = row_kind(problem, inputs, rows, b, h, i, visible);
  row.o.assign(static_cast<std::size_t>(problem.v_head_dim), T(0.0));
  row.lse = -infinity<T>();
  if (row.kind == RowKind::padding) return row;
  if (row.kind == RowKind::unspecified) {
    std::fill(row.o.begin(), row.o.end(), quiet_nan<T>());
    row.lse = quiet_nan<T>();
    return row;
  }
  const T sink(sink_at(values, h));
  if (row.kind == RowKind::empty_sink) {
    row.lse = sink;
    return row;
  }
  if (row.kind == RowKind::empty) {
    fill_empty(problem, values, rows.of_query(i), b, h, row);
    return row;
  }

  // Steps 0 to 3.
  const std::int64_t query_position = qpos(rows.of_query(i), i);
  const std::vector<T> q = positioned_row<T>(problem, values.q, b, h, i, query_position);
  const T scale = exact_scale<T>(problem);
  std::vector<T> z;
  for (const std::int64_t j : visible) {
    if (bias_hides(inputs, b, h, i, j)) continue;  // step 4
    row.keys.push_back(j);
    z.push_back(score_terms<T>(problem, values, rows, b, h, i, j, q, query_position, scale).z);
  }

  // Step 5: lse = m + ln(sum_j exp(z_j - m) + [sink] exp(sink - m)), with m the largest of them.
  T m = -infinity<T>();
  for (const T& x : z) m = std::max(m, x);
  if (sink > m) m = sink;
  T sum(0.0);
  for (const T& x : z) {
    row.weights.push_back(exp(T(x - m)));
    sum += row.weights.back();
  }
  if (sink_at(inputs, h) > -infinity<double>()) sum += exp(T(sink - m));
  row.lse = m + log(sum);

  // Step 6: P = exp(z - lse) = exp(z - m) / sum.
  for (T& p : row.weights) p = p / sum;

  // Step 7: o = sum_j f_j P_j v_j.
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t j = row.keys[n];
    const T weight = keep_factor<T>(problem, inputs, b, h, i, j) * row.weights[n];
    const std::vector<T> v = read_row<T>(values.v, b, kv_head(problem, h), j);
    for (std::size_t c = 0; c < v.size(); ++c) row.o[c] += weight * v[c];
  }
  return row;
}

template <Number T>
ForwardRow<T> forward_row(const AttentionProblem& problem, const AttentionInputs& inputs,
                          const Rows& rows, std::int64_t b, std::int64_t h, std::int64_t i) {
  return forward_row<T, double>(problem, inputs, inputs, rows, b, h, i);
}

}  // namespace attest
