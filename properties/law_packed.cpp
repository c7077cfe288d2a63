// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7061636bu;

std::vector<std::int64_t> cut_points(const AttentionProblem& problem, std::uint64_t tag,
                                     std::int64_t rows, std::int64_t segments) {
  std::vector<std::int64_t> ends{0};
  for (std::int64_t s = 1; s < segments; ++s)
    ends.push_back(chosen(problem, tag + static_cast<std::uint64_t>(s), rows + 1));
  ends.push_back(rows);
  std::sort(ends.begin(), ends.end());
  return ends;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::packed)) return std::nullopt;
  if (problem.cu_seqlens_q.empty()) {
    drop_ranges(problem);
    problem.batch = 1;
    problem.q_len = std::max<std::int64_t>(problem.q_len, 4);
    problem.kv_len = std::max<std::int64_t>(problem.kv_len, 4);
    const std::int64_t segments = 2 + chosen(problem, kTag, 2);
    problem.cu_seqlens_q = cut_points(problem, kTag + 1, problem.q_len, segments);
    problem.cu_seqlens_k = cut_points(problem, kTag + 10, problem.kv_len, segments);
  }
  problem.blocks = false;
  problem = law_sized(std::move(problem), declaration);
  if (problem.cu_seqlens_q.empty() || problem.blocks) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  LawJudge judge(problem, "calling a segment alone");
  const Rows rows = rows_of(problem, 0);
  for (std::size_t s = 0; s < rows.segments.size(); ++s) {
    const Segment& segment = rows.segments[s];
    if (segment.q0 == segment.q1 || segment.k0 == segment.k1) continue;
    Restatement alone = restate(problem, context.inputs(problem));
    pick_queries(alone, rows_between(segment.q0, segment.q1));
    pick_keys(alone, rows_between(segment.k0, segment.k1));
    AttentionProblem& p = alone.problem;
    p.cu_seqlens_q.clear();
    p.cu_seqlens_k.clear();
    if (!p.q_offset.empty()) p.q_offset = {p.q_offset[s]};
    if (!p.prefix_len.empty()) p.prefix_len = {p.prefix_len[s]};
    if (!settle(alone, context.declaration())) return not_sayable();
    LawCall call;
    if (auto result = further_call(context, whole, alone, true, call)) return *result;
    Same same;
    same.row_of.assign(num_rows(problem), -1);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = segment.q0; i < segment.q1; ++i)
        same.row_of[row_index(problem, 0, h, i)] =
            static_cast<std::int64_t>(row_index(p, 0, h, i - segment.q0));
    compare_same(whole, call, same, judge);
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_packed, {
                    .id = "LAW-PACKED",
                    .sentence = "the segments of a packed batch are the same as calls of their own",
                    .adapt = adapt,
                    .check = check,
                    .share = 60,
                });

}  // namespace
}  // namespace attest
