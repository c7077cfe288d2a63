// SPDX-License-Identifier: Apache-2.0
// The audit: rows sampled from the run, recomputed by the definition and held against the fast
// oracle's certified radius. An element outside its radius means that the oracle is wrong: exit
// code 3, never a pass.
#pragma once

#include <cstdint>

#include "attest/record.hpp"
#include "reference/expected.hpp"

namespace attest {

/// Recomputes up to `max_rows` rows of the problem, chosen by `seed`, while their (query, key)
/// pairs stay within `max_pairs` (8 us a pair and 50 digits at D = 64), and adds the result to
/// `audit`.
void audit_rows(const AttentionProblem& problem, const AttentionInputs& inputs,
                const Expected& expected, std::uint64_t seed, std::int64_t max_rows,
                std::int64_t max_pairs, Audit& audit);

/// The tolerance of one element: min(T_M, T_S).
inline double tolerance_of(const ExpectedTensor& tensor, std::size_t index) {
  return tensor.t_mixed[index] < tensor.t_stat[index] ? tensor.t_mixed[index]
                                                      : tensor.t_stat[index];
}

}  // namespace attest
