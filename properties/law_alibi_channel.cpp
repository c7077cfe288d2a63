// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x616c6963u;
constexpr std::int64_t kFarthest = 100;  // positions stay within the 8 bits of bf16

/// m (kpos - qpos) and m kpos are products of what the query and what the key know, and so two more
/// channels; the absolute distance is not.
bool bilinear(AlibiKind kind) {
  return kind == AlibiKind::signed_ || kind == AlibiKind::key_anchored;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::scale) || !declaration.v_head_dims) return std::nullopt;
  if (!bilinear(problem.alibi)) {
    const bool anchored = declaration.has(Feature::alibi_key_anchored);
    if (!anchored && !declaration.has(Feature::alibi_signed)) return std::nullopt;
    problem.alibi =
        anchored && (chosen(problem, kTag, 2) == 0 || !declaration.has(Feature::alibi_signed))
            ? AlibiKind::key_anchored
            : AlibiKind::signed_;
  }
  // The channels come before the softcap.
  if (problem.softcap == 0 && declaration.has(Feature::alibi_inside_softcap) &&
      chosen(problem, kTag + 1, 2) == 0)
    problem.softcap = 20;
  problem.alibi_inside_softcap = problem.softcap > 0;
  problem.rope = RopePairing::none;
  problem.scale = chosen(problem, kTag + 2, 2) == 0 ? 0.5 : 0.125;
  for (std::int64_t& offset : problem.q_offset) offset = std::clamp(offset, -kFarthest, kFarthest);
  problem = law_sized(std::move(problem), declaration);
  if (!bilinear(problem.alibi) || problem.alibi_inside_softcap != (problem.softcap > 0) ||
      !problem.scale || !contains(declaration.head_dims, problem.head_dim + 2))
    return std::nullopt;
  return problem;
}

/// Two more channels of zeros.
Dense<double> widened(const Dense<double>& tensor) {
  Dense<double> wide({tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3] + 2});
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
    for (std::int64_t h = 0; h < tensor.shape[1]; ++h)
      for (std::int64_t i = 0; i < tensor.shape[2]; ++i)
        for (std::int64_t c = 0; c < tensor.shape[3]; ++c)
          wide.at(b, h, i, c) = tensor.at(b, h, i, c);
  return wide;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement with_alibi = restate(problem, context.inputs(problem));
  round_slopes(with_alibi.inputs.slopes);
  Restatement with_channels = with_alibi;
  AttentionInputs& inputs = with_channels.inputs;
  inputs.q = widened(inputs.q);
  inputs.k = widened(inputs.k);
  const std::int64_t first = problem.head_dim, second = first + 1;
  const auto put = [&](double& to, double value) {
    to = value;
    return round_to(problem.dtype, value) == value;
  };
  bool exact = true;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        if (!rows.real_query(i)) continue;
        const double slope =
            inputs.slopes.values[inputs.slopes.broadcast_index(b, h, 0, 0)] / *problem.scale;
        exact &= put(inputs.q.at(b, h, i, first), slope);
        if (problem.alibi == AlibiKind::signed_)
          exact &= put(inputs.q.at(b, h, i, second),
                       -slope * static_cast<double>(qpos(rows.of_query(i), i)));
      }
    for (std::int64_t g = 0; g < problem.num_kv_heads; ++g)
      for (std::int64_t j = 0; j < problem.kv_len; ++j) {
        if (!rows.real_key(j)) continue;
        exact &= put(inputs.k.at(b, g, j, first), static_cast<double>(kpos(rows.of_key(j), j)));
        inputs.k.at(b, g, j, second) = 1;
      }
  }
  if (!exact) return not_sayable();
  inputs.slopes = {};
  with_channels.problem.alibi = AlibiKind::none;
  with_channels.problem.alibi_inside_softcap = false;

  if (!settle(with_alibi, context.declaration()) || !settle(with_channels, context.declaration()))
    return not_sayable();
  LawCall base, other;
  if (auto result = further_call(context, base, with_alibi, false, base)) return *result;
  if (auto result = further_call(context, base, with_channels, false, other)) return *result;
  LawJudge judge(problem, "two more channels in place of ALiBi");
  compare_same(base, other, {}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_alibi_channel,
    {
        .id = "LAW-ALIBI-CHANNEL",
        .sentence =
            "signed and key-anchored ALiBi, without softcap or inside it, are the same as two more "
            "channels of q and k",
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
