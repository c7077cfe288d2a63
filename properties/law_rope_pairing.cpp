// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x72707061u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::rope_half) || !declaration.has(Feature::rope_interleaved))
    return std::nullopt;
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 2);
  if (problem.rope == RopePairing::none)
    problem.rope = chosen(problem, kTag, 2) == 0 ? RopePairing::half : RopePairing::interleaved;
  problem = law_sized(std::move(problem), declaration);
  if (problem.rope == RopePairing::none) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  // Pair t lies in channels t and t + R/2, or 2t and 2t + 1.
  Restatement restated = restate(problem, context.inputs(problem));
  const std::int64_t half = effective_rope_dim(problem) / 2;
  const bool to_interleaved = problem.rope == RopePairing::half;
  std::vector<std::int64_t> channels = counting(problem.head_dim);
  for (std::int64_t t = 0; t < half; ++t)
    for (std::int64_t second = 0; second < 2; ++second) {
      const std::int64_t apart = t + second * half, beside = 2 * t + second;
      channels[static_cast<std::size_t>(to_interleaved ? beside : apart)] =
          to_interleaved ? apart : beside;
    }
  pick_channels(restated.inputs.q, channels);
  pick_channels(restated.inputs.k, channels);
  restated.problem.rope = to_interleaved ? RopePairing::interleaved : RopePairing::half;
  return check_same(context, problem, std::move(restated), {}, true,
                    "pairing the channels of RoPE the other way");
}

ATTEST_REQUIREMENT(
    law_rope_pairing,
    {
        .id = "LAW-ROPE-PAIRING",
        .sentence =
            "RoPE on halves is RoPE on neighbours with the channels of q and k put in that order",
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
