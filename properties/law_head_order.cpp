// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x686f7264u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (problem.num_heads < 2) problem.num_heads = problem.num_kv_heads = 2;
  problem = law_sized(std::move(problem), declaration);
  if (problem.num_heads < 2) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  // Key/value heads in another order take their query heads along, which change places among
  // themselves too.
  const std::int64_t group = problem.num_heads / problem.num_kv_heads;
  const auto kv_order = shuffled(problem, kTag, problem.num_kv_heads);
  const auto order_inside = shuffled(problem, kTag + 1, group);
  std::vector<std::int64_t> order;
  for (const std::int64_t g : kv_order)
    for (const std::int64_t n : order_inside) order.push_back(g * group + n);

  Restatement restated = restate(problem, context.inputs(problem));
  pick_kv_heads(restated, kv_order);
  pick_heads(restated, order);
  Same same;
  same.row_of.resize(num_rows(problem));
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        same.row_of[row_index(problem, b, order[static_cast<std::size_t>(h)], i)] =
            static_cast<std::int64_t>(row_index(problem, b, h, i));
  return check_same(context, problem, std::move(restated), same, true, "permuting the heads");
}

ATTEST_REQUIREMENT(
    law_head_order,
    {
        .id = "LAW-HEAD-ORDER",
        .sentence = "heads in another order, each with what belongs to it, give the same rows",
        .adapt = adapt,
        .check = check,
        .share = 60,
        .of_decode = "CACHE-HEAD-ORDER",
    });

}  // namespace
}  // namespace attest
