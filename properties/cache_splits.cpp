// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.cache.splits) return "not declared: splits";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.num_splits = 0;
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode || problem.kv_len < 1) return std::nullopt;
  return problem;
}

/// Up to more parts than there are keys: some of them are empty.
CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall base;
  if (auto result = first_call(context, problem, base)) return *result;
  LawJudge judge(problem, "another number of splits");
  for (const std::int64_t splits :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{3},
        std::max<std::int64_t>(problem.kv_len / 16, 4), problem.kv_len, problem.kv_len + 5}) {
    Restatement restated = restate(problem, context.inputs(problem));
    restated.problem.num_splits = splits;
    if (!settle(restated, context.declaration())) return not_sayable();
    LawCall call;
    if (auto result = further_call(context, base, restated, true, call)) return *result;
    compare_same(base, call, {}, judge);
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(cache_splits,
                   {
                       .id = "CACHE-SPLITS",
                       .sentence = "the keys in one part, in several, or in more than there are "
                                   "keys give the same",
                       .operation = Operation::decode,
                       .skip = skip,
                       .adapt = adapt,
                       .check = check,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
