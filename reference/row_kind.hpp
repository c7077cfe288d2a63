// SPDX-License-Identifier: Apache-2.0
// What kind of row a query row is, before any arithmetic: docs/semantics.md sections 2 (empty rows,
// finite mask values, domain) and 7 (values that are not finite).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/expected.hpp"
#include "reference/visible.hpp"

namespace attest {

/// Key rows that visible() shows to query row i, bias = -inf included, in ascending order.
std::vector<std::int64_t> visible_keys(const AttentionProblem& problem,
                                       const AttentionInputs& inputs, const Rows& rows,
                                       std::int64_t b, std::int64_t h, std::int64_t i);

/// The first that applies:
///   padding      row i lies outside every query range
///   unspecified  a NaN or an Inf that counts: sink NaN or +inf; with a visible key: in q_i, in the
///                head's slope, in k_j or v_j of a visible key, in its bias unless that is -inf;
///                without one, in a v that the `mean_v` convention averages
///   empty_sink, empty   every score is -inf, with and without a finite sink
///   lowest_only  every score carries a finite mask value, bias <= -max_finite/2 of the storage
///                type, and no finite sink gives the row an ordinary score
///   ordinary
/// `visible` is visible_keys(). The accumulator's range is not looked at: see inside_domain().
RowKind row_kind(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
                 std::int64_t b, std::int64_t h, std::int64_t i,
                 const std::vector<std::int64_t>& visible);

/// sink_h, or -inf for none.
template <class T>
T sink_at(const RealTensors<T>& inputs, std::int64_t h) {
  if (!inputs.sink.present) return -std::numeric_limits<T>::infinity();
  return inputs.sink.values[inputs.sink.index(0, h, 0, 0)];
}

/// A bias so low that it is meant as a mask: at most half of the storage type's lowest number.
inline bool is_finite_mask(DType type, double bias) { return bias <= -limits(type).max_finite / 2; }

/// Section 2, Domain. `dot_load`: largest sum_c |q_c k_c| max(1, |scale|) of the row; `score`:
/// largest |z| of an ordinary score; `value_load`: largest sum_j |v_jc| of a channel.
inline bool inside_domain(double dot_load, double score, double value_load,
                          double max_accumulator) {
  const double bound = max_accumulator / 4;
  return dot_load < bound && score < bound && value_load < bound;
}

}  // namespace attest
