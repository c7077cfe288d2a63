// SPDX-License-Identifier: Apache-2.0
// Whole calls against the oracle and against each other, for requirements that make calls of their
// own.
#pragma once

#include <string>

#include "harness/requirement.hpp"

namespace attest {

/// Status, then o, then lse against the oracle: the first failure, else what o came to.
CaseResult judge_outputs(CaseContext& context, const AttentionProblem& problem,
                         const Expected& expected, const Observation& seen);

/// judge_outputs() of the standard first call: a whole check.
CaseResult check_outputs(CaseContext& context, const AttentionProblem& problem);

/// The failure of a call that differs from another in `what` alone, the other being right.
CaseResult broken_by(CaseResult failure, const std::string& what);

/// Nothing can be said of what a change does to a call that is wrong without it.
CaseResult wrong_anyway();

}  // namespace attest
