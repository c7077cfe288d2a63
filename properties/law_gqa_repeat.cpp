// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::gqa)) return std::nullopt;
  if (problem.num_heads == problem.num_kv_heads) problem.num_heads *= 2;
  return law_sized(std::move(problem), declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < problem.num_heads; ++h)
    heads.push_back(h / (problem.num_heads / problem.num_kv_heads));
  Restatement restated = restate(problem, context.inputs(problem));
  pick_kv_heads(restated, heads);
  return check_same(context, problem, std::move(restated), {}, true,
                    "repeating each key/value head for its query heads");
}

ATTEST_REQUIREMENT(
    law_gqa_repeat,
    {
        .id = "LAW-GQA-REPEAT",
        .sentence = "grouped heads are the same as key/value heads repeated for every query head",
        .adapt = adapt,
        .check = check,
        .share = 60,
        .of_decode = "CACHE-GQA-REPEAT",
    });

}  // namespace
}  // namespace attest
