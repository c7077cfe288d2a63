// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x72706469u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  const bool half = declaration.has(Feature::rope_half);
  if (!half && !declaration.has(Feature::rope_interleaved)) return std::nullopt;
  if (!declaration.has(Feature::lse)) return std::nullopt;  // a row with one key says no more
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 2);
  if (problem.rope == RopePairing::none)
    problem.rope =
        half && chosen(problem, kTag, 2) == 0 ? RopePairing::half : RopePairing::interleaved;
  problem.window_left = problem.window_right = 0;
  problem.global_tokens = 0;
  problem = law_sized(std::move(problem), declaration);
  if (problem.rope == RopePairing::none || problem.window_left != 0 || problem.window_right != 0 ||
      problem.global_tokens != 0)
    return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  AttentionProblem& p = restated.problem;
  const AttentionProblem defaults;
  p.rope = RopePairing::none;
  p.rope_dim = defaults.rope_dim;
  p.rope_base = defaults.rope_base;
  p.rope_scale = defaults.rope_scale;
  p.rope_ntk = defaults.rope_ntk;
  return check_same(context, problem, std::move(restated), {}, true,
                    "leaving RoPE away where a query sees its own position alone");
}

ATTEST_REQUIREMENT(
    law_rope_diagonal,
    {
        .id = "LAW-ROPE-DIAGONAL",
        .sentence =
            "RoPE rotates a query and the key at its position alike: where no other is seen it "
            "changes nothing",
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
