// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.deterministic) return "not promised: deterministic";
  return skip_without_backward(declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  // Other junk around the tensors and in the workspace, at the other end of their slots.
  CaseResult result;
  for_each_gradient(problem, [&](Gradient gradient) {
    const auto n = static_cast<std::size_t>(gradient);
    const SeenTensor& first = context.first(problem).gradients[n];
    const SeenTensor& second = context.second(problem).gradients[n];
    for (std::size_t flat = 0; flat < first.bits.size(); ++flat) {
      ++result.elements_compared;
      const bool both_nan = std::isnan(first.values[flat]) && std::isnan(second.values[flat]);
      if (first.bits[flat] == second.bits[flat] || both_nan || result.verdict == Verdict::fail)
        continue;
      result = element_failure(problem, output_of(gradient), flat, first.values[flat],
                               second.values[flat], Reason::not_deterministic,
                               "running the same call again, with other junk around it, changes " +
                                   element_name(problem, output_of(gradient), flat));
    }
  });
  return result;
}

ATTEST_REQUIREMENT(grad_deterministic,
                   {
                       .id = "GRAD-RUN",
                       .sentence = "the same backward call gives the same bits again, whatever "
                                   "lies in bytes that must not matter",
                       .operation = Operation::backward,
                       .skip = skip,
                       .check = check,
                   });

}  // namespace
}  // namespace attest
