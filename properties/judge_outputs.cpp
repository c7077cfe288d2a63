// SPDX-License-Identifier: Apache-2.0
#include "properties/judge_outputs.hpp"

#include "harness/data.hpp"

namespace attest {

CaseResult judge_outputs(CaseContext& context, const AttentionProblem& problem,
                         const Expected& expected, const Observation& seen) {
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const bool generic = is_generic(problem);
  CaseResult result = judge_values(problem, expected, Output::o, seen.o, generic);
  if (is_failure(result.verdict) || seen.lse.empty()) return result;
  CaseResult lse = judge_values(problem, expected, Output::lse, seen.lse, generic);
  if (is_failure(lse.verdict) || result.verdict == Verdict::not_judged) return lse;
  result.elements_compared += lse.elements_compared;
  return result;
}

CaseResult check_outputs(CaseContext& context, const AttentionProblem& problem) {
  return judge_outputs(context, problem, context.expected(problem), context.first(problem));
}

CaseResult broken_by(CaseResult failure, const std::string& what) {
  if (failure.verdict == Verdict::fail && failure.reason == Reason::wrong_value)
    failure.reason = Reason::law_broken;
  failure.detail = what + ": " + failure.detail;
  failure.ratio_output.clear();
  return failure;
}

CaseResult wrong_anyway() {
  CaseResult result;
  result.verdict = Verdict::not_judged;
  result.detail = "the call is wrong without the change too";
  return result;
}

}  // namespace attest
