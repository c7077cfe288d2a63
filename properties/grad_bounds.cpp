// SPDX-License-Identifier: Apache-2.0
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  CaseResult result;
  for (const Observation* seen : {&context.first(problem), &context.second(problem)}) {
    if (!seen->writes_outside.empty()) {
      result.verdict = Verdict::fail;
      result.reason = Reason::out_of_bounds_write;
      result.detail = seen->writes_outside.front();
      return result;
    }
    if (seen->inputs_modified.empty()) continue;
    result.verdict = Verdict::fail;
    result.reason = Reason::input_modified;
    result.detail = "modifies its input " + seen->inputs_modified.front();
    return result;
  }
  return result;
}

ATTEST_REQUIREMENT(grad_bounds,
                   {
                       .id = "GRAD-BOUNDS",
                       .sentence = "a backward call reads and writes nothing outside its tensors "
                                   "and changes no input, o, lse and dO among them",
                       .operation = Operation::backward,
                       .skip = skip_without_backward,
                       .check = check,
                   });

}  // namespace
}  // namespace attest
