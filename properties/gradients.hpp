// SPDX-License-Identifier: Apache-2.0
// What the requirements of single gradients share.
#pragma once

#include <optional>
#include <string>

#include "harness/requirement.hpp"

namespace attest {

/// Why nothing can be said of this gradient; nullopt where it is declared.
std::optional<std::string> skip_of(const Declaration& declaration, Gradient gradient);
/// The first call's gradient against the oracle.
CaseResult judge_first(CaseContext& context, const AttentionProblem& problem, Gradient gradient);

template <Gradient kGradient>
std::optional<std::string> skip_gradient(const Declaration& declaration) {
  return skip_of(declaration, kGradient);
}
template <Gradient kGradient>
bool asks_for(const AttentionProblem& problem, const Declaration&) {
  return wants_gradient(problem, kGradient);
}
template <Gradient kGradient>
CaseResult check_gradient(CaseContext& context, const AttentionProblem& problem) {
  return judge_first(context, problem, kGradient);
}

}  // namespace attest
