// SPDX-License-Identifier: Apache-2.0
#include <numbers>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x64757065u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem = law_sized(std::move(problem), declaration);
  drop_positions(problem);
  drop_ranges(problem);
  problem.blocks = false;
  problem.sink = SinkKind::none;  // it would have to double too
  problem = make_legal(std::move(problem), declaration);
  if (has_positions(problem) || has_ranges(problem) || problem.blocks) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const bool neighbours = chosen(problem, kTag, 2) == 0;
  std::vector<std::int64_t> keys;
  for (std::int64_t n = 0; n < 2 * problem.kv_len; ++n)
    keys.push_back(neighbours ? n / 2 : n % problem.kv_len);
  Restatement restated = restate(problem, context.inputs(problem));
  pick_keys(restated, keys);
  Same same;
  same.lse_shift.assign(num_rows(problem), std::numbers::ln2);
  return check_same(context, problem, std::move(restated), same, false,
                    "undoing a doubling of all keys");
}

ATTEST_REQUIREMENT(law_duplicate_keys,
                   {
                       .id = "LAW-DUPLICATE-KEYS",
                       .sentence = "with every key twice o is the same and lse larger by log 2",
                       .adapt = adapt,
                       .check = check,
                       .share = 50,
                   });

}  // namespace
}  // namespace attest
