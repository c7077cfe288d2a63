// SPDX-License-Identifier: Apache-2.0
// Steps 0 to 3 of docs/semantics.md section 2: from one query row and one key row to their score.
#pragma once

#include <cstdint>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/alibi.hpp"
#include "reference/number.hpp"
#include "reference/rope.hpp"
#include "reference/visible.hpp"

namespace attest {

/// Row (b, h, row) of q, k or v: its channels as T.
template <Number T, class V>
std::vector<T> read_row(const Dense<V>& tensor, std::int64_t b, std::int64_t h, std::int64_t row) {
  const std::size_t first = tensor.index(b, h, row, 0);
  const auto channels = static_cast<std::size_t>(tensor.shape[3]);
  std::vector<T> values;
  values.reserve(channels);
  for (std::size_t c = 0; c < channels; ++c) values.emplace_back(tensor.values[first + c]);
  return values;
}

/// Step 0: a row of q or k, rotated to its position where the problem has RoPE.
template <Number T, class V>
std::vector<T> positioned_row(const AttentionProblem& problem, const Dense<V>& tensor,
                              std::int64_t b, std::int64_t h, std::int64_t row,
                              std::int64_t position) {
  std::vector<T> values = read_row<T>(tensor, b, h, row);
  if (problem.rope != RopePairing::none)
    rotate(values, problem.rope, cached_rotations<T>(rope_parameters(problem), position));
  return values;
}

/// The factor of step 1: the given double, by default exactly 1/sqrt(D).
template <Number T>
T exact_scale(const AttentionProblem& problem) {
  using std::sqrt;
  if (problem.scale) return T(*problem.scale);
  return T(1.0) / sqrt(T(static_cast<double>(problem.head_dim)));
}

/// sum_c q_c k_c.
template <Number T>
T dot(const std::vector<T>& q, const std::vector<T>& k) {
  T sum(0.0);
  for (std::size_t c = 0; c < q.size(); ++c) sum += q[c] * k[c];
  return sum;
}

/// Step 2: softcap tanh(a / softcap), or a without one.
template <Number T>
T capped(const T& a, double softcap) {
  using std::tanh;
  if (!(softcap > 0)) return a;
  return T(softcap) * tanh(T(a / T(softcap)));
}

/// The values of steps 1 to 3 for one (i, j). bias holds the T5 bias too.
template <Number T>
struct ScoreTerms {
  T dot, a, c, alibi, bias, z;
};

/// `q` is the positioned query row, `query_position` its position; j is a real key row.
template <Number T, class V>
ScoreTerms<T> score_terms(const AttentionProblem& problem, const RealTensors<V>& inputs,
                          const Rows& rows, std::int64_t b, std::int64_t h, std::int64_t i,
                          std::int64_t j, const std::vector<T>& q, std::int64_t query_position,
                          const T& scale) {
  const std::int64_t key_position = kpos(rows.of_key(j), j);
  const std::vector<T> k = positioned_row<T>(problem, inputs.k, b, kv_head(problem, h), j,
                                             rotation_kpos(problem, rows.of_key(j), j));
  ScoreTerms<T> terms;
  terms.dot = dot(q, k);
  terms.a = scale * terms.dot;  // step 1
  terms.alibi =
      problem.alibi == AlibiKind::none
          ? T(0.0)
          : alibi_term(problem.alibi, T(slope_at(inputs, b, h)), query_position, key_position);
  terms.bias = T(bias_at(inputs, b, h, i, j));
  if (problem.alibi_inside_softcap) {
    terms.c = capped(T(terms.a + terms.alibi), problem.softcap);  // step 2, ALiBi `inside`
    terms.z = terms.c + terms.bias;                               // step 3
  } else {
    terms.c = capped(terms.a, problem.softcap);    // step 2
    terms.z = terms.c + terms.alibi + terms.bias;  // step 3
  }
  return terms;
}

}  // namespace attest
