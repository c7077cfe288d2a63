// SPDX-License-Identifier: Apache-2.0
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  CaseResult result;
  for (const Observation* seen : {&context.first(problem), &context.second(problem)}) {
    if (seen->writes_outside.empty()) continue;
    result.verdict = Verdict::fail;
    result.reason = Reason::out_of_bounds_write;
    result.detail = seen->writes_outside.front();
    return result;
  }
  return result;
}

ATTEST_REQUIREMENT(
    bounds,
    {
        .id = "MEM-BOUNDS",
        .sentence =
            "nothing is read or written outside the tensors, before their start or past their "
            "end, nor written between their elements",
        .check = check,
        .of_decode = "CACHE-BOUNDS",
        .of_rope = "ROPE-BOUNDS",
    });

}  // namespace
}  // namespace attest
