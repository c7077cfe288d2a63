// SPDX-License-Identifier: Apache-2.0
// How simple a problem is: the fixed measure that every step of shrinking lowers, so that shrinking
// ends.
#pragma once

#include <array>
#include <cstdint>

#include "attest/problem.hpp"

namespace attest {

/// Compared from the front: features in use; sum of the dims; rank of the remaining choices (dtype,
/// kinds, axes, family); sum of windows, lengths and offsets; rank of the numbers given literally;
/// the seed.
using Complexity = std::array<std::uint64_t, 6>;

Complexity complexity(const AttentionProblem& problem);

inline bool is_simpler(const AttentionProblem& candidate, const AttentionProblem& than) {
  return complexity(candidate) < complexity(than);
}

/// 0, 1, -1, small integers, halves and quarters, then by the number of significant bits; NaN and
/// infinities last.
std::uint64_t number_rank(double value);

}  // namespace attest
