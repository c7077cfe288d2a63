// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

#include "harness/data.hpp"

namespace attest {

std::optional<std::string> skip_of(const Declaration& declaration, Gradient gradient) {
  const BackwardScope& backward = declaration.backward;
  if (!backward.served) return "not declared: backward";
  if (gradient == Gradient::bias && !backward.bias) return "not declared: backward=bias";
  if (gradient == Gradient::slopes && !backward.slopes) return "not declared: backward=slopes";
  if (gradient == Gradient::sink && !backward.sink) return "not declared: backward=sink";
  return std::nullopt;
}

CaseResult judge_first(CaseContext& context, const AttentionProblem& problem, Gradient gradient) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  return judge_gradient(problem, context.inputs(problem), context.expected(problem), gradient,
                        seen.gradients[static_cast<std::size_t>(gradient)].values,
                        is_generic(problem));
}

}  // namespace attest
