// SPDX-License-Identifier: Apache-2.0
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  // The first call has the tensors against the end of their pages, at addresses that are multiples
  // of no more than the kernel asks for; the second at the start of a page.
  const Expected& expected = context.expected(problem);
  const CaseResult first = judge_outputs(context, problem, expected, context.first(problem));
  CaseResult second = judge_outputs(context, problem, expected, context.second(problem));
  second.ratio_output.clear();
  if (is_failure(first.verdict) && is_failure(second.verdict)) return wrong_anyway();
  if (is_failure(first.verdict))
    return broken_by(first, "with tensors at the end of a page instead of its start");
  if (is_failure(second.verdict))
    return broken_by(second, "with tensors at the start of a page instead of its end");
  return second;
}

ATTEST_REQUIREMENT(inv_alignment,
                   {
                       .id = "INV-ALIGNMENT",
                       .sentence = "where tensors lie in memory does not change a value",
                       .check = check,
                   });

}  // namespace
}  // namespace attest
