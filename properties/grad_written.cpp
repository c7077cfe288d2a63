// SPDX-License-Identifier: Apache-2.0
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  CaseResult result;
  for_each_gradient(problem, [&](Gradient gradient) {
    const auto n = static_cast<std::size_t>(gradient);
    const SeenTensor& first = context.first(problem).gradients[n];
    const SeenTensor& second = context.second(problem).gradients[n];
    result.elements_compared += static_cast<std::int64_t>(first.values.size());
    const std::vector<std::size_t> missing = unwritten(first.junk, second.junk);
    if (missing.empty() || result.verdict == Verdict::fail) return;
    result = element_failure(
        problem, output_of(gradient), missing[0], 0, second.values[missing[0]], Reason::unwritten,
        std::to_string(missing.size()) + " of " + std::to_string(first.values.size()) +
            " elements of " + std::string(name(output_of(gradient))) + " are left unwritten");
    result.elements_failed = static_cast<std::int64_t>(missing.size());
  });
  return result;
}

ATTEST_REQUIREMENT(grad_written,
                   {
                       .id = "GRAD-WRITTEN",
                       .sentence = "every element of every gradient that is asked for is written",
                       .operation = Operation::backward,
                       .skip = skip_without_backward,
                       .check = check,
                   });

}  // namespace
}  // namespace attest
