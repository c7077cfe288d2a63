// SPDX-License-Identifier: Apache-2.0
#include "harness/data.hpp"
#include "harness/requirement.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.has(Feature::lse)) return "not declared: lse";
  return std::nullopt;
}

bool applies(const AttentionProblem& problem, const Declaration&) { return problem.want_lse; }

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  return judge_values(problem, context.expected(problem), Output::lse, seen.lse,
                      is_generic(problem));
}

ATTEST_REQUIREMENT(
    oracle_lse,
    {
        .id = "ORACLE-LSE",
        .sentence = "every element of lse lies within its derived tolerance of the exact value",
        .skip = skip,
        .applies = applies,
        .check = check,
        .of_decode = "CACHE-LSE",
    });

}  // namespace
}  // namespace attest
