// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6368756eu;

/// Each chunk is told where it stands by q_offset; or, under causal, by cutting off the keys after
/// its last row, so that bottom_right puts it there: prefilling a prompt in chunks.
bool by_cutting_keys(const AttentionProblem& problem, const Declaration& declaration) {
  return problem.base == Base::causal && problem.align == Align::bottom_right &&
         declaration.has(Feature::align_bottom_right) &&
         (!declaration.has(Feature::align_q_offset) || chosen(problem, kTag, 2) == 0);
}

bool sayable(const AttentionProblem& problem, const Declaration& declaration) {
  return !has_positions(problem) || declaration.has(Feature::align_q_offset) ||
         by_cutting_keys(problem, declaration);
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  drop_ranges(problem);
  problem.blocks = false;
  problem.q_len = std::max<std::int64_t>(problem.q_len, 2);
  problem = law_sized(std::move(problem), declaration);
  if (!sayable(problem, declaration)) {
    drop_positions(problem);
    problem = make_legal(std::move(problem), declaration);
  }
  if (problem.q_len < 2 || problem.blocks || has_ranges(problem) || !sayable(problem, declaration))
    return std::nullopt;
  return problem;
}

struct Chunk {
  Restatement call;
  bool empty = false;  ///< none of its rows sees a key
};

/// Rows [first, last) as a call of their own. All sequences have the same offset here but where
/// q_offset is given.
Chunk chunk_of(const AttentionProblem& problem, const AttentionInputs& inputs,
               const Declaration& declaration, std::int64_t first, std::int64_t last) {
  Chunk chunk{restate(problem, inputs)};
  pick_queries(chunk.call, rows_between(first, last));
  if (!has_positions(problem)) return chunk;
  AttentionProblem& p = chunk.call.problem;
  if (!by_cutting_keys(problem, declaration)) {
    std::vector<std::int64_t> offsets;
    for (std::int64_t b = 0; b < problem.batch; ++b)
      offsets.push_back(rows_of(problem, b).segments.front().offset + first);
    p.align = Align::q_offset;
    p.q_offset = std::move(offsets);
    return chunk;
  }
  const std::int64_t offset = problem.kv_len - problem.q_len;
  const std::int64_t keys = std::min(last + offset, problem.kv_len);
  chunk.empty = keys <= 0;
  if (!chunk.empty) pick_keys(chunk.call, counting(keys));
  return chunk;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Declaration& declaration = context.declaration();
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  std::vector<std::int64_t> ends{0, 1 + chosen(problem, kTag + 1, problem.q_len - 1),
                                 1 + chosen(problem, kTag + 2, problem.q_len - 1), problem.q_len};
  std::sort(ends.begin(), ends.end());
  LawJudge judge(problem, "a chunk of the queries");
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    const std::int64_t first = ends[n], last = ends[n + 1];
    if (first == last) continue;
    Chunk chunk = chunk_of(problem, context.inputs(problem), declaration, first, last);
    if (chunk.empty) continue;
    if (!settle(chunk.call, declaration)) return not_sayable();
    LawCall call;
    if (auto result = further_call(context, whole, chunk.call, true, call)) return *result;
    Same same;
    same.row_of.assign(num_rows(problem), -1);
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t h = 0; h < problem.num_heads; ++h)
        for (std::int64_t i = first; i < last; ++i)
          same.row_of[row_index(problem, b, h, i)] =
              static_cast<std::int64_t>(row_index(chunk.call.problem, b, h, i - first));
    compare_same(whole, call, same, judge);
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_query_chunks,
    {
        .id = "LAW-QUERY-CHUNKS",
        .sentence = "queries in chunks, each told where it stands, give the rows of one call",
        .adapt = adapt,
        .check = check,
        .share = 70,
    });

}  // namespace
}  // namespace attest
