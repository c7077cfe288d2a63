// SPDX-License-Identifier: Apache-2.0
#include "harness/appended.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult wrong_row(const AttentionProblem& problem, const WrongAppended& wrong) {
  const char* what = wrong.output == Output::appended_v ? "the new value"
                     : problem.cache_rotated            ? "the new key, rotated to its position"
                                                        : "the new key";
  return element_failure(problem, wrong.output, wrong.flat, wrong.expected, wrong.actual,
                         Reason::wrong_value,
                         element_name(problem, wrong.output, wrong.flat) + " is not " + what);
}

/// o and lse of two calls with other junk around may differ in a last bit; what is stored may not.
CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  const PrecisionProfile profile = context.declaration().profile_for(problem.dtype);
  CaseResult result;
  for (const Observation* seen : {&context.first(problem), &context.second(problem)})
    if (const auto wrong = wrong_appended(problem, context.inputs(problem), profile, *seen,
                                          result.elements_compared))
      return wrong_row(problem, *wrong);
  return result;
}

ATTEST_REQUIREMENT(
    cache_append,
    {
        .id = "CACHE-APPEND",
        .sentence =
            "the new keys and values lie in the cache behind the earlier ones, bit for bit, "
            "or rotated where the cache holds rotated keys",
        .operation = Operation::decode,
        .check = check,
    });

}  // namespace
}  // namespace attest
