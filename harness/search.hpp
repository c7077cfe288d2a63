// SPDX-License-Identifier: Apache-2.0
// From a failing problem to a minimal one.
#pragma once

#include <functional>

#include "harness/requirement.hpp"

namespace attest {

struct ShrinkBudget {
  int tries = 4000;
  double seconds = 10;
};

struct Shrunk {
  AttentionProblem problem;
  CaseResult result;
  int tries = 0, accepted = 0;
  bool fully = true;  ///< false: the budget ended it
};

/// Follows simpler() (and the requirement's adapt) as long as the check fails with the same verdict
/// and reason. Ends with literal data where the problem is tiny.
Shrunk shrink(const Requirement& requirement, CaseContext& context, const AttentionProblem& problem,
              const CaseResult& result, const ShrinkBudget& budget);

}  // namespace attest
