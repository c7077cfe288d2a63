// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x706f7368u;
constexpr std::int64_t kMostKeys = 40;

/// With q_offset positions are shifted by name; bottom_right counts from the end, and so shifts
/// them by itself.
bool shifts(const AttentionProblem& problem) {
  return problem.align == Align::bottom_right || problem.align == Align::q_offset;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::mask) && !declaration.has(Feature::bias_neg_inf))
    return std::nullopt;
  // These speak of absolute positions.
  problem.global_tokens = 0;
  if (problem.base == Base::prefix) problem.base = Base::causal;
  if (problem.alibi == AlibiKind::key_anchored) problem.alibi = AlibiKind::none;
  drop_ranges(problem);
  problem.blocks = false;
  if (!shifts(problem)) problem.align = Align::bottom_right;
  problem = law_sized(std::move(problem), declaration);
  if (problem.global_tokens > 0 || problem.base == Base::prefix || has_ranges(problem) ||
      problem.blocks || problem.alibi == AlibiKind::key_anchored)
    return std::nullopt;
  if (has_positions(problem) && !shifts(problem)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  // Keys in front, hidden by mask or bias: all positions move on by their number.
  const std::int64_t extra = 1 + chosen(problem, kTag, kMostKeys);
  std::vector<std::int64_t> keys(static_cast<std::size_t>(extra), 0);
  for (std::int64_t j = 0; j < problem.kv_len; ++j) keys.push_back(j);
  Restatement restated = restate(problem, context.inputs(problem));
  AttentionInputs& inputs = restated.inputs;
  const Declaration& declaration = context.declaration();
  const bool by_mask = declaration.has(Feature::mask) &&
                       (!declaration.has(Feature::bias_neg_inf) || chosen(problem, kTag + 1, 2));
  if (by_mask && !inputs.mask.present) {
    inputs.mask = Dense<std::uint8_t>({1, 1, 1, 1});
    inputs.mask.values[0] = 1;
  }
  if (!by_mask && !inputs.bias.present) inputs.bias = Dense<double>({1, 1, 1, 1});
  store_axis(inputs.mask, 3, problem.kv_len);
  store_axis(inputs.bias, 3, problem.kv_len);
  pick_keys(restated, keys);
  store_axis(inputs.mask, 3, problem.kv_len + extra);
  store_axis(inputs.bias, 3, problem.kv_len + extra);
  const auto hide = [&](auto& tensor, auto hidden) {
    for (std::size_t n = 0; n < tensor.values.size(); ++n)
      if (static_cast<std::int64_t>(n) % tensor.shape[3] < extra) tensor.values[n] = hidden;
  };
  if (by_mask)
    hide(inputs.mask, std::uint8_t{0});
  else
    hide(inputs.bias, -std::numeric_limits<double>::infinity());
  for (std::int64_t& offset : restated.problem.q_offset) offset += extra;
  return check_same(context, problem, std::move(restated), {}, true,
                    "moving all positions on by hidden keys in front");
}

ATTEST_REQUIREMENT(
    law_position_shift,
    {
        .id = "LAW-POSITION-SHIFT",
        .sentence =
            "only distances count: hidden keys in front, which move the positions of all queries "
            "and keys alike, change neither mask nor window, ALiBi or RoPE",
        .adapt = adapt,
        .check = check,
        .share = 70,
    });

}  // namespace
}  // namespace attest
