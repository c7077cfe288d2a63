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
  // RoPE rotates channels by their place.
  if (problem.rope == RopePairing::none) {
    const auto order = shuffled(problem, kTag, problem.head_dim);
    pick_channels(restated.inputs.q, order);
    pick_channels(restated.inputs.k, order);
  }
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
            "channels of v in another order give those of o in that order; without RoPE those of q "
            "and k can change places together",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
