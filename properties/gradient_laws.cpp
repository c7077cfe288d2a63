// SPDX-License-Identifier: Apache-2.0
#include "properties/gradient_laws.hpp"

#include <cmath>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "reference/audit.hpp"

namespace attest {

std::optional<std::string> skip_without_backward(const Declaration& declaration) {
  if (!declaration.backward.served) return "not declared: backward";
  return std::nullopt;
}

std::optional<AttentionProblem> backward_law_sized(AttentionProblem problem,
                                                   const Declaration& declaration) {
  problem = law_sized(to_backward(std::move(problem), declaration), declaration);
  if (problem.operation != Operation::backward) return std::nullopt;
  // One number for all of dO cannot be changed in one row.
  if (problem.d_o_layout == Layout::broadcast) problem.d_o_layout.reset();
  return problem;
}

double GradientCall::allowed(Gradient gradient, std::size_t flat) const {
  const ExpectedTensor& tensor = expected.gradients[static_cast<std::size_t>(gradient)];
  return generic ? tolerance_of(tensor, flat) : tensor.t_mixed[flat];
}

std::optional<CaseResult> call_gradients(CaseContext& context, const AttentionProblem& problem,
                                         const AttentionInputs& inputs, GradientCall& call) {
  call.problem = problem;
  call.inputs = inputs;
  call.seen = context.call(problem, inputs);
  if (auto result = judge_call(call.seen, context.declaration(), problem)) return *result;
  call.expected = expect(problem, inputs, context.declaration().profile_for(problem.dtype));
  call.generic = is_generic(problem);
  return std::nullopt;
}

void compare_gradients(const GradientCall& base, const std::vector<GradientTerm>& terms,
                       LawJudge& judge) {
  for_each_gradient(base.problem, [&](Gradient gradient) {
    const std::vector<double>& values = base.values(gradient);
    const double most = limits(base.problem.dtype).max_finite / 8;
    for (std::size_t flat = 0; flat < values.size(); ++flat) {
      double sum = 0, allowed = base.allowed(gradient, flat);
      for (const GradientTerm& term : terms) {
        const double value = term.call->values(gradient)[flat];
        sum += term.factor * value;
        // The sum itself is rounded here.
        allowed += std::fabs(term.factor) *
                   (term.call->allowed(gradient, flat) + 0x1p-51 * std::fabs(value));
        if (std::fabs(
                term.call->expected.gradients[static_cast<std::size_t>(gradient)].value[flat]) >
            most)
          allowed = std::numeric_limits<double>::infinity();  // may overflow on one side
      }
      judge.add(output_of(gradient), flat, values[flat], sum, allowed, true);
    }
  });
}

CaseResult check_restated_gradients(CaseContext& context, const AttentionProblem& problem,
                                    Restatement restated,
                                    const std::function<void(GradientCall&)>& put_back,
                                    const std::string& what) {
  GradientCall base, other;
  if (auto result = call_gradients(context, problem, context.inputs(problem), base)) return *result;
  if (!settle(restated, context.declaration())) return not_sayable();
  if (auto result = call_gradients(context, restated.problem, restated.inputs, other))
    return *result;
  other.generic = base.generic;
  put_back(other);
  LawJudge judge(problem, what);
  compare_gradients(base, {{&other, 1}}, judge);
  return std::move(judge).finish();
}

}  // namespace attest
