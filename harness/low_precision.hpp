// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"

namespace attest {

/// o [B, Hq, Lq, Dv] as a framework computes it operation by operation in the storage type: every
/// product, score, weight and output is stored rounded, sums are not. The yardstick of rules that
/// allow a kernel a multiple of its error. Rows without a visible key are 0.
std::vector<double> low_precision_output(const AttentionProblem& problem,
                                         const AttentionInputs& inputs);

}  // namespace attest
