// SPDX-License-Identifier: Apache-2.0
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  CaseResult result;
  for (const Observation* seen : {&context.first(problem), &context.second(problem)}) {
    if (seen->inputs_modified.empty()) continue;
    result.verdict = Verdict::fail;
    result.reason = Reason::input_modified;
    result.detail = "modifies its input " + seen->inputs_modified.front();
    return result;
  }
  return result;
}

ATTEST_REQUIREMENT(inputs_untouched, {
                                         .id = "MEM-INPUTS",
                                         .sentence = "no byte of an input is modified",
                                         .check = check,
                                         .of_decode = "CACHE-UNTOUCHED",
                                         .of_rope = "ROPE-INPUTS",
                                     });

}  // namespace
}  // namespace attest
