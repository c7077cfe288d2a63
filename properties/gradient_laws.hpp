// SPDX-License-Identifier: Apache-2.0
// What laws of gradients share: law_support.hpp for backward calls.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {

/// "not declared: backward"
std::optional<std::string> skip_without_backward(const Declaration& declaration);

/// The backward call of a problem that is small enough for a law. nullopt where the kernel has
/// none.
std::optional<AttentionProblem> backward_law_sized(AttentionProblem problem,
                                                   const Declaration& declaration);

/// One backward call with its values; `generic` as in LawCall.
struct GradientCall {
  AttentionProblem problem;
  AttentionInputs inputs;
  Observation seen;
  Expected expected;
  bool generic = false;

  const std::vector<double>& values(Gradient gradient) const {
    return seen.gradients[static_cast<std::size_t>(gradient)].values;
  }
  /// What an element may be off by; infinite where it is not judged.
  double allowed(Gradient gradient, std::size_t flat) const;
};

/// The case's own call, with other values where `inputs` differ from those of the case.
std::optional<CaseResult> call_gradients(CaseContext& context, const AttentionProblem& problem,
                                         const AttentionInputs& inputs, GradientCall& call);

/// base = sum of factor * gradient over the other calls, element by element, for every gradient
/// that they all have in one shape.
struct GradientTerm {
  const GradientCall* call;
  double factor;
};
void compare_gradients(const GradientCall& base, const std::vector<GradientTerm>& terms,
                       LawJudge& judge);

/// The law of a restated problem: its gradients, once `put_back` has brought them into the shapes
/// and the order of the case's own, equal those.
CaseResult check_restated_gradients(CaseContext& context, const AttentionProblem& problem,
                                    Restatement restated,
                                    const std::function<void(GradientCall&)>& put_back,
                                    const std::string& what);

/// visit(gradient) for each that the problem asks for.
template <class Visit>
void for_each_gradient(const AttentionProblem& problem, Visit visit) {
  for (std::size_t n = 0; n < kNumGradients; ++n)
    if (wants_gradient(problem, static_cast<Gradient>(n))) visit(static_cast<Gradient>(n));
}

}  // namespace attest
