// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.has(Feature::layout_strided)) return "not declared: layout=strided";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.layout = Layout::far;
  // Each row takes pages of its own; those of the keys up to 4 of each tensor.
  problem.batch = std::min<std::int64_t>(problem.batch, 2);
  const std::int64_t group = problem.num_heads / problem.num_kv_heads;
  problem.num_kv_heads = std::min<std::int64_t>(problem.num_kv_heads, 2);
  problem.num_heads = problem.num_kv_heads * std::min<std::int64_t>(group, 2);
  problem.q_len = std::min<std::int64_t>(problem.q_len, 5);
  problem.kv_len = std::min<std::int64_t>(problem.kv_len, 7);
  return make_legal(problem, declaration);
}

bool applies(const AttentionProblem& problem, const Declaration&) {
  return problem.layout == Layout::far && problem.batch * problem.q_len * problem.kv_len > 0;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Expected& expected = context.expected(problem);
  CaseResult result;
  for (const Observation* seen : {&context.first(problem), &context.second(problem)}) {
    result = judge_outputs(context, problem, expected, *seen);
    if (!is_failure(result.verdict)) continue;
    result.detail = "with rows more than 2^31 elements apart: " + result.detail;
    break;
  }
  return result;
}

ATTEST_REQUIREMENT(
    limit_stride, {
                      .id = "LIMIT-STRIDE",
                      .sentence = "rows, heads and sequences may lie more than 2^31 elements apart",
                      .skip = skip,
                      .adapt = adapt,
                      .applies = applies,
                      .check = check,
                      .share = 4,
                  });

}  // namespace
}  // namespace attest
