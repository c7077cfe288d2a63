// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x73746570u;
constexpr std::int64_t kMostRows = 12;
/// Up to here every way to cut the prompt is tried: 8 ways, 20 calls.
constexpr std::int64_t kAllWays = 4;

/// The case itself is the whole prompt in one chunk, into an empty cache.
std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::causal)) return std::nullopt;
  problem.base = Base::causal;
  problem.blocks = false;
  drop_ranges(problem);
  problem.cache_rows = 0;
  problem.kv_len = std::clamp<std::int64_t>(problem.kv_len, 2, kMostRows);
  problem.q_len = problem.kv_len;
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode || problem.base != Base::causal || problem.blocks ||
      has_ranges(problem) || problem.q_len != problem.kv_len || problem.q_len < 2)
    return std::nullopt;
  return problem;
}

/// The chunks of a prompt by their ends: bit n of `cuts` ends one after row n.
std::vector<std::int64_t> ends_of(std::int64_t rows, std::uint64_t cuts) {
  std::vector<std::int64_t> ends;
  for (std::int64_t row = 1; row < rows; ++row)
    if (cuts >> (row - 1) & 1) ends.push_back(row);
  ends.push_back(rows);
  return ends;
}

std::vector<std::uint64_t> ways_to_cut(const AttentionProblem& problem) {
  const std::uint64_t every = (std::uint64_t{1} << (problem.q_len - 1)) - 1;
  std::vector<std::uint64_t> ways;
  if (problem.q_len <= kAllWays) {
    for (std::uint64_t cuts = 1; cuts <= every; ++cuts) ways.push_back(cuts);
    return ways;
  }
  const auto drawn = static_cast<std::uint64_t>(chosen(problem, kTag, std::int64_t{1} << 30));
  ways.push_back(drawn & every);
  ways.push_back(chosen(problem, kTag + 1, 2) == 0 ? every
                                                   : std::uint64_t{1} << (problem.q_len - 2));
  return ways;
}

/// The smallest ring that a prompt in these chunks can go through.
std::int64_t ring_rows(const AttentionProblem& problem, const std::vector<std::int64_t>& ends) {
  if (problem.window_left < 0 || problem.global_tokens > 0) return problem.q_len;
  std::int64_t longest = 0, first = 0;
  for (const std::int64_t end : ends) {
    longest = std::max(longest, end - first);
    first = end;
  }
  return std::min(problem.window_left + longest, problem.q_len);
}

/// What the calls so far have put into the cache takes the place of what they were given.
void take_rows(const SeenTensor& appended, std::int64_t first, Dense<double>& whole) {
  const std::int64_t channels = whole.shape[3];
  const std::int64_t rows = std::ssize(appended.values) /
                            std::max<std::int64_t>(whole.shape[0] * whole.shape[1] * channels, 1);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < whole.shape[0]; ++b)
    for (std::int64_t g = 0; g < whole.shape[1]; ++g)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t c = 0; c < channels; ++c, ++flat)
          whole.at(b, g, first + i, c) = appended.values[flat];
}

/// Calls chunk after chunk; the result that says why it ends early.
std::optional<CaseResult> walk(CaseContext& context, const LawCall& whole,
                               const std::vector<std::int64_t>& ends, LawJudge& judge) {
  const AttentionProblem& problem = whole.problem;
  AttentionInputs now = context.inputs(problem);
  std::int64_t first = 0;
  for (const std::int64_t last : ends) {
    Restatement step = restate(problem, now);
    pick_keys(step, counting(last));
    pick_queries(step, rows_between(first, last));
    step.problem.cache_rows =
        problem.cache == CacheKind::ring ? ring_rows(problem, ends) : problem.q_len;
    if (!settle(step, context.declaration())) return not_sayable();
    LawCall call;
    if (auto result = further_call(context, whole, step, true, call)) return result;
    Same same;
    same.row_of.assign(num_rows(problem), -1);
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t h = 0; h < problem.num_heads; ++h)
        for (std::int64_t i = first; i < last; ++i)
          same.row_of[row_index(problem, b, h, i)] =
              static_cast<std::int64_t>(row_index(step.problem, b, h, i - first));
    compare_same(whole, call, same, judge);
    take_rows(call.seen.appended_k, first, now.k);
    take_rows(call.seen.appended_v, first, now.v);
    first = last;
  }
  return std::nullopt;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  LawJudge judge(problem, "a prompt in chunks");
  for (const std::uint64_t cuts : ways_to_cut(problem))
    if (auto result = walk(context, whole, ends_of(problem.q_len, cuts), judge)) return *result;
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    cache_steps,
    {
        .id = "CACHE-STEPS",
        .sentence =
            "a prompt step by step, or in any chunks, gives the rows of one call, each step "
            "with the cache that the steps before it wrote",
        .operation = Operation::decode,
        .adapt = adapt,
        .check = check,
        .share = 100,
    });

}  // namespace
}  // namespace attest
