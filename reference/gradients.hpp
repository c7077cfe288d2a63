// SPDX-License-Identifier: Apache-2.0
// The definition of the gradients on a number type: docs/semantics.md section 5, straight from its
// table. Instantiated in gradients.cpp.
//
//   dP = f (dO.v)   delta = sum_j P dP   dZ = P (dP - delta + dLSE)   dA = dZ (1 -
//   tanh^2(a/softcap)) dQ = scale sum_j dA k      dK = scale sum over heads and rows dA q     dV =
//   sum f P dO dBias = dZ      dSlope = sum dZ d alibi/d slope      dSink = -sum exp(sink - lse)
//   (delta - dLSE)
//
// Shapes are those of the inputs: what broadcasts is summed. With RoPE dQ and dK are turned back.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention.hpp"

namespace attest {

/// One query row, as far as gradients need it.
template <Number T>
struct BackwardRow {
  std::vector<std::int64_t> keys;  ///< visible, bias > -inf
  std::vector<T> p_kept;           ///< f P of each
  std::vector<T> d_z, d_a;         ///< dZ and dA of each
  T d_sink{0.0};
};

/// 1 - tanh^2 x of the softcap's argument, as 4 e / (1 + e)^2 with e = exp(-2|x|): beyond |x| = 57
/// the difference has none of 50 digits left. ALiBi counts where it stands inside.
template <Number T>
T softcap_slope(const AttentionProblem& problem, const ScoreTerms<T>& terms) {
  using std::exp;
  if (!(problem.softcap > 0)) return T(1.0);
  const T argument = problem.alibi_inside_softcap ? T(terms.a + terms.alibi) : terms.a;
  const T x = argument / T(problem.softcap);
  const T e = exp(T(T(-2.0) * (x < T(0.0) ? T(-x) : x)));
  return T(4.0) * e / ((T(1.0) + e) * (T(1.0) + e));
}

/// dO.v of key j, which is dP without the dropout factor.
template <Number T>
T d_weight(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
           std::int64_t h, std::int64_t i, std::int64_t j) {
  return dot(read_row<T>(inputs.d_o, b, h, i), read_row<T>(inputs.v, b, kv_head(problem, h), j));
}
inline double d_lse_at(const AttentionInputs& inputs, std::int64_t b, std::int64_t h,
                       std::int64_t i) {
  return inputs.d_lse.present ? inputs.d_lse.at(b, h, i, 0) : 0;
}

/// Row (b, h, i). Of a row that is judged otherwise than by value every gradient is NaN.
template <Number T>
BackwardRow<T> backward_row(const AttentionProblem& problem, const AttentionInputs& inputs,
                            const Rows& rows, std::int64_t b, std::int64_t h, std::int64_t i) {
  using std::exp;
  const ForwardRow<T> forward = forward_row<T>(problem, inputs, rows, b, h, i);
  BackwardRow<T> row;
  if (forward.kind == RowKind::unspecified || forward.kind == RowKind::lowest_only) {
    row.keys = visible_keys(problem, inputs, rows, b, h, i);
    row.p_kept.assign(row.keys.size(), quiet_nan<T>());
    row.d_z = row.d_a = row.p_kept;
    row.d_sink = quiet_nan<T>();
    return row;
  }
  row.keys = forward.keys;
  const T d_lse(d_lse_at(inputs, b, h, i));

  std::vector<T> d_p;
  T delta(0.0);
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const T kept = keep_factor<T>(problem, inputs, b, h, i, row.keys[n]);
    row.p_kept.push_back(kept * forward.weights[n]);
    d_p.push_back(kept * d_weight<T>(problem, inputs, b, h, i, row.keys[n]));
    delta += forward.weights[n] * d_p[n];
  }
  if (const double sink = sink_at(inputs, h); sink > -infinity<double>())
    row.d_sink = exp(T(T(sink) - forward.lse)) * (d_lse - delta);

  const std::int64_t query_position = qpos(rows.of_query(i), i);
  const std::vector<T> q = positioned_row<T>(problem, inputs.q, b, h, i, query_position);
  const T scale = exact_scale<T>(problem);
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const ScoreTerms<T> terms =
        score_terms<T>(problem, inputs, rows, b, h, i, row.keys[n], q, query_position, scale);
    row.d_z.push_back(forward.weights[n] * (d_p[n] - delta + d_lse));
    row.d_a.push_back(row.d_z[n] * softcap_slope(problem, terms));
  }
  return row;
}

template <Number T>
Dense<T> zeros_like(const Dense<double>& tensor) {
  Dense<T> zeros;
  if (!tensor.present) return zeros;
  zeros = Dense<T>(tensor.shape);
  for (T& x : zeros.values) x = T(0.0);
  return zeros;
}

template <Number T>
RealTensors<T> zero_gradients(const AttentionInputs& inputs) {
  return {zeros_like<T>(inputs.q),    zeros_like<T>(inputs.k),      zeros_like<T>(inputs.v),
          zeros_like<T>(inputs.bias), zeros_like<T>(inputs.slopes), zeros_like<T>(inputs.sink)};
}

/// Turns every real row of a gradient back from its position: the transpose of step 0.
template <Number T>
void turn_back(const AttentionProblem& problem, std::int64_t b, std::int64_t row,
               std::int64_t position, Dense<T>& gradient) {
  std::vector<Rotation<T>> back = cached_rotations<T>(rope_parameters(problem), position);
  for (Rotation<T>& pair : back) pair.sin = -pair.sin;
  for (std::int64_t h = 0; h < gradient.shape[1]; ++h) {
    std::vector<T> values = read_row<T>(gradient, b, h, row);
    rotate(values, problem.rope, back);
    for (std::size_t c = 0; c < values.size(); ++c)
      gradient.at(b, h, row, static_cast<std::int64_t>(c)) = values[c];
  }
}

/// Adds what row (b, h, i) contributes; dQ and dK in the rotated frame.
template <Number T>
void add_row(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
             std::int64_t b, std::int64_t h, std::int64_t i, const BackwardRow<T>& row,
             RealTensors<T>& sums) {
  const std::int64_t query_position = qpos(rows.of_query(i), i), g = kv_head(problem, h);
  const std::vector<T> q = positioned_row<T>(problem, inputs.q, b, h, i, query_position);
  const std::vector<T> d_o = read_row<T>(inputs.d_o, b, h, i);
  const T scale = exact_scale<T>(problem);
  if (inputs.sink.present) sums.sink.at(0, h, 0, 0) += row.d_sink;
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t j = row.keys[n], key_position = kpos(rows.of_key(j), j);
    const std::vector<T> k = positioned_row<T>(problem, inputs.k, b, g, j, key_position);
    for (std::int64_t c = 0; c < problem.head_dim; ++c) {
      const auto at = static_cast<std::size_t>(c);
      sums.q.at(b, h, i, c) += scale * row.d_a[n] * k[at];
      sums.k.at(b, g, j, c) += scale * row.d_a[n] * q[at];
    }
    for (std::int64_t c = 0; c < problem.v_head_dim; ++c)
      sums.v.at(b, g, j, c) += row.p_kept[n] * d_o[static_cast<std::size_t>(c)];
    if (inputs.bias.present)
      sums.bias.values[inputs.bias.broadcast_index(b, h, i, j)] += row.d_z[n];
    if (problem.alibi == AlibiKind::none) continue;
    // Inside the softcap ALiBi is capped with the score.
    const T& d_alibi = problem.alibi_inside_softcap ? row.d_a[n] : row.d_z[n];
    sums.slopes.values[inputs.slopes.broadcast_index(b, h, 0, 0)] +=
        d_alibi * alibi_term(problem.alibi, T(1.0), query_position, key_position);
  }
}

/// All gradients for inputs.d_o and inputs.d_lse. Rows outside the query ranges and rows without a
/// key give nothing but, with a sink, dLSE to dSink.
template <Number T>
RealTensors<T> gradients(const AttentionProblem& problem, const AttentionInputs& inputs) {
  RealTensors<T> sums = zero_gradients<T>(inputs);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        if (rows.real_query(i))
          add_row(problem, inputs, rows, b, h, i, backward_row<T>(problem, inputs, rows, b, h, i),
                  sums);
    if (problem.rope == RopePairing::none) continue;
    for (std::int64_t i = 0; i < problem.q_len; ++i)
      if (rows.real_query(i)) turn_back(problem, b, i, qpos(rows.of_query(i), i), sums.q);
    for (std::int64_t j = 0; j < problem.kv_len; ++j)
      if (rows.real_key(j)) turn_back(problem, b, j, kpos(rows.of_key(j), j), sums.k);
  }
  return sums;
}

}  // namespace attest
