// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6b6f7264u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.kv_len = std::max<std::int64_t>(problem.kv_len, 2);
  problem = law_sized(std::move(problem), declaration);
  drop_positions(problem);
  problem.blocks = false;
  problem = make_legal(std::move(problem), declaration);
  if (has_positions(problem) || problem.blocks || problem.kv_len < 2) return std::nullopt;
  return problem;
}

/// A permutation of all key rows that leaves every row in its range, in all sequences.
std::vector<std::int64_t> key_order(const AttentionProblem& problem) {
  std::vector<std::int64_t> order = counting(problem.kv_len);
  const auto shuffle_range = [&](std::int64_t first, std::int64_t last) {
    if (last - first < 2) return;
    const auto inside = shuffled(problem, kTag + static_cast<std::uint64_t>(first), last - first);
    for (std::int64_t n = 0; n < last - first; ++n)
      order[static_cast<std::size_t>(first + n)] = first + inside[static_cast<std::size_t>(n)];
  };
  if (!problem.cu_seqlens_k.empty()) {
    for (const Segment& segment : rows_of(problem, 0).segments)
      shuffle_range(segment.k0, segment.k1);
    return order;
  }
  std::int64_t first = 0, last = problem.kv_len;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (const Segment& segment : rows_of(problem, b).segments) {
      first = std::max(first, segment.k0);
      last = std::min(last, segment.k1);
    }
  shuffle_range(first, last);
  return order;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  pick_keys(restated, key_order(problem));
  return check_same(context, problem, std::move(restated), {}, true, "permuting the keys");
}

ATTEST_REQUIREMENT(
    law_key_order,
    {
        .id = "LAW-KEY-ORDER",
        .sentence =
            "where nothing depends on positions, keys in another order give the same o and lse",
        .adapt = adapt,
        .check = check,
        .share = 60,
        .of_decode = "CACHE-KEY-ORDER",
    });

}  // namespace
}  // namespace attest
