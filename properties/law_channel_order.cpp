// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6368616eu;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem = law_sized(std::move(problem), declaration);
  if (problem.head_dim < 2 && problem.v_head_dim < 2) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  // RoPE rotates channels by their place, and lets those beyond its dim through.
  const std::int64_t fixed = problem.rope == RopePairing::none ? 0 : effective_rope_dim(problem);
  std::vector<std::int64_t> dots = counting(fixed);
  for (const std::int64_t c : shuffled(problem, kTag, problem.head_dim - fixed))
    dots.push_back(fixed + c);
  pick_channels(restated.inputs.q, dots);
  pick_channels(restated.inputs.k, dots);
  const auto order = shuffled(problem, kTag + 1000, problem.v_head_dim);
  pick_channels(restated.inputs.v, order);
  Same same;
  same.channel_of.resize(order.size());
  for (std::size_t c = 0; c < order.size(); ++c)
    same.channel_of[static_cast<std::size_t>(order[c])] = static_cast<std::int64_t>(c);
  return check_same(context, problem, std::move(restated), same, true, "permuting the channels");
}

ATTEST_REQUIREMENT(
    law_channel_order,
    {
        .id = "LAW-CHANNEL-ORDER",
        .sentence =
            "channels of v in another order give those of o in that order; those of q and k that "
            "RoPE does not rotate can change places together",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
