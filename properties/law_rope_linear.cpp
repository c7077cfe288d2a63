// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x72706c69u;

/// Positions times s, divided by s again: exact for a power of two.
double factor(const AttentionProblem& problem) { return chosen(problem, kTag + 1, 2) == 0 ? 2 : 4; }

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  const bool half = declaration.has(Feature::rope_half);
  if (!declaration.has(Feature::rope_linear) || !declaration.has(Feature::align_q_offset) ||
      !declaration.has(Feature::mask) || (!half && !declaration.has(Feature::rope_interleaved)))
    return std::nullopt;
  // Nothing else may look at positions, and one row of queries stands where one number says.
  const AttentionProblem drawn = problem;
  drop_positions(problem);
  drop_ranges(problem);
  problem.blocks = false;
  problem.q_len = 1;
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 2);
  problem.rope = drawn.rope;
  if (problem.rope == RopePairing::none)
    problem.rope =
        half && chosen(problem, kTag, 2) == 0 ? RopePairing::half : RopePairing::interleaved;
  problem.rope_scale = 1;
  if (problem.align != Align::q_offset) {
    problem.align = Align::q_offset;
    for (std::int64_t b = 0; b < problem.batch; ++b)
      problem.q_offset.push_back(
          chosen(problem, kTag + 10 + static_cast<std::uint64_t>(b), problem.kv_len + 3));
  }
  problem = law_sized(std::move(problem), declaration);
  if (problem.rope == RopePairing::none || problem.align != Align::q_offset ||
      problem.base != Base::full || problem.q_len != 1 || has_ranges(problem) || problem.blocks)
    return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const double scale = factor(problem);
  const auto stride = static_cast<std::int64_t>(scale);
  std::vector<std::int64_t> keys;
  for (std::int64_t n = 0; n < stride * problem.kv_len; ++n) keys.push_back(n / stride);
  Restatement restated = restate(problem, context.inputs(problem));
  Dense<std::uint8_t>& mask = restated.inputs.mask;
  if (!mask.present) {
    mask = Dense<std::uint8_t>({1, 1, 1, 1});
    mask.values[0] = 1;
  }
  store_axis(mask, 3, problem.kv_len);
  pick_keys(restated, keys);
  store_axis(mask, 3, stride * problem.kv_len);
  for (std::size_t n = 0; n < mask.values.size(); ++n)
    if (static_cast<std::int64_t>(n) % stride != 0) mask.values[n] = 0;
  for (std::int64_t& offset : restated.problem.q_offset) offset *= stride;
  restated.problem.rope_scale = scale;
  return check_same(context, problem, std::move(restated), {}, true,
                    "keys that stand s times as far apart, with positions divided by s,");
}

ATTEST_REQUIREMENT(
    law_rope_linear,
    {
        .id = "LAW-ROPE-LINEAR",
        .sentence =
            "linear RoPE scaling by s divides positions: keys s times as far apart are the same",
        .adapt = adapt,
        .check = check,
        .share = 30,
    });

}  // namespace
}  // namespace attest
