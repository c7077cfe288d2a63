// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x616c6962u;

/// Distances up to about this are exact in the storage type.
std::int64_t farthest(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? 100 : 5000;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::bias)) return std::nullopt;
  if (problem.alibi == AlibiKind::none) {
    std::vector<AlibiKind> kinds;
    if (declaration.has(Feature::alibi_absolute)) kinds.push_back(AlibiKind::absolute);
    if (declaration.has(Feature::alibi_signed)) kinds.push_back(AlibiKind::signed_);
    if (declaration.has(Feature::alibi_key_anchored)) kinds.push_back(AlibiKind::key_anchored);
    if (kinds.empty()) return std::nullopt;
    problem.alibi = kinds[static_cast<std::size_t>(chosen(problem, kTag, std::ssize(kinds)))];
  }
  problem.alibi_inside_softcap = false;  // a bias comes after the softcap
  problem.bias = BiasKind::none;
  for (std::int64_t& offset : problem.q_offset)
    offset = std::clamp(offset, -farthest(problem.dtype), farthest(problem.dtype));
  problem = law_sized(std::move(problem), declaration);
  if (problem.alibi == AlibiKind::none || problem.alibi_inside_softcap) return std::nullopt;
  return problem;
}

double distance(AlibiKind kind, std::int64_t query, std::int64_t key) {
  switch (kind) {
    case AlibiKind::absolute: return -static_cast<double>(std::abs(query - key));
    case AlibiKind::signed_: return static_cast<double>(key - query);
    case AlibiKind::key_anchored: return static_cast<double>(key);
    case AlibiKind::none: break;
  }
  return 0;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement with_alibi = restate(problem, context.inputs(problem));
  round_slopes(with_alibi.inputs.slopes);

  Restatement with_bias = with_alibi;
  const Dense<double>& slopes = with_alibi.inputs.slopes;
  Dense<double> bias({problem.batch, problem.num_heads, problem.q_len, problem.kv_len});
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t j = 0; j < problem.kv_len; ++j) {
          if (!range_visible(rows, i, j)) continue;
          const double value =
              slopes.values[slopes.broadcast_index(b, h, 0, 0)] *
              distance(problem.alibi, qpos(rows.of_query(i), i), kpos(rows.of_key(j), j));
          if (round_to(problem.dtype, value) != value) return not_sayable();
          bias.at(b, h, i, j) = value;
        }
  }
  with_bias.inputs.bias = std::move(bias);
  with_bias.inputs.slopes = {};
  with_bias.problem.alibi = AlibiKind::none;

  if (!settle(with_alibi, context.declaration()) || !settle(with_bias, context.declaration()))
    return not_sayable();
  LawCall base, other;
  if (auto result = further_call(context, base, with_alibi, false, base)) return *result;
  if (auto result = further_call(context, base, with_bias, false, other)) return *result;
  LawJudge judge(problem, "a bias in place of ALiBi");
  compare_same(base, other, {}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_alibi_bias,
    {
        .id = "LAW-ALIBI-BIAS",
        .sentence = "ALiBi is the same as a bias that holds its slopes times distances",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
