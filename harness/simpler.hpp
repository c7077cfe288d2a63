// SPDX-License-Identifier: Apache-2.0
// Shrinking: the problems one step simpler than this one, the boldest first.
#pragma once

#include <vector>

#include "attest/problem.hpp"

namespace attest {

/// Only legal problems, each smaller in a fixed measure, so that repeated steps end. Order: a few
/// leaps to the plainest problems; all features off; all but one; each off; heads and batch to 1;
/// each dim to 1, half, minus one; coupled dims; windows down; every smaller enum value; data
/// family to the simplest; seed to 0 and half; for tiny problems literal data, each value towards 0
/// and 1.
std::vector<AttentionProblem> simpler(const AttentionProblem& problem);

/// The same problem with its values written out (data=list), where it is small enough for one line.
AttentionProblem with_literal_data(const AttentionProblem& problem);

}  // namespace attest
