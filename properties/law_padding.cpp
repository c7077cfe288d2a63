// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x70616464u;

bool has_padding(const AttentionProblem& problem) {
  return problem.cu_seqlens_q.empty() && has_ranges(problem);
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.cu_seqlens_q.clear();
  problem.cu_seqlens_k.clear();
  if (!has_ranges(problem)) {
    problem.q_len = std::max<std::int64_t>(problem.q_len, 2);
    problem.kv_len = std::max<std::int64_t>(problem.kv_len, 2);
    // Right and left, of keys and queries: what is declared, each with a chance of one half.
    const auto pad = [&](Feature feature, std::uint64_t tag, std::vector<std::int64_t>& list,
                         std::int64_t rows, bool right) {
      if (!declaration.has(feature) || chosen(problem, tag, 2) == 0) return;
      for (std::int64_t b = 0; b < problem.batch; ++b) {
        const std::int64_t real =
            1 + chosen(problem, tag + 1 + static_cast<std::uint64_t>(b), rows - rows / 2);
        list.push_back(right ? rows / 2 + real : rows / 2 + 1 - std::min(real, rows / 2 + 1));
      }
    };
    pad(Feature::seqlens_k, kTag, problem.seqlens_k, problem.kv_len, true);
    pad(Feature::seqlens_q, kTag + 20, problem.seqlens_q, problem.q_len, true);
    pad(Feature::left_pad_k, kTag + 40, problem.left_pad_k, problem.kv_len, false);
    pad(Feature::left_pad_q, kTag + 60, problem.left_pad_q, problem.q_len, false);
  }
  problem.blocks = false;
  problem = law_sized(std::move(problem), declaration);
  if (!has_padding(problem) || problem.blocks) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  LawJudge judge(problem, "cutting the padding off");
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Segment segment = rows_of(problem, b).segments.front();
    if (segment.q0 >= segment.q1 || segment.k0 >= segment.k1) continue;
    Restatement cut = restate(problem, context.inputs(problem));
    pick_batches(cut, {b});
    pick_queries(cut, rows_between(segment.q0, segment.q1));
    pick_keys(cut, rows_between(segment.k0, segment.k1));
    drop_ranges(cut.problem);
    if (!settle(cut, context.declaration())) return not_sayable();
    LawCall call;
    if (auto result = further_call(context, whole, cut, true, call)) return *result;
    Same same;
    same.row_of.assign(num_rows(problem), -1);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = segment.q0; i < segment.q1; ++i)
        same.row_of[row_index(problem, b, h, i)] =
            static_cast<std::int64_t>(row_index(cut.problem, 0, h, i - segment.q0));
    compare_same(whole, call, same, judge);
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_padding,
    {
        .id = "LAW-PADDING",
        .sentence =
            "padding on the right or left of queries and keys is the same as tensors without it",
        .adapt = adapt,
        .check = check,
        .share = 70,
    });

}  // namespace
}  // namespace attest
