// SPDX-License-Identifier: Apache-2.0
#include "harness/data.hpp"
#include "harness/requirement.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  return judge_values(problem, context.expected(problem), Output::o, seen.o, is_generic(problem));
}

ATTEST_REQUIREMENT(
    oracle_o,
    {
        .id = "ORACLE-O",
        .sentence = "every element of o lies within its derived tolerance of the exact value",
        .check = check,
        .of_decode = "CACHE-O",
        .of_rope = "ROPE-ORACLE",
    });

}  // namespace
}  // namespace attest
