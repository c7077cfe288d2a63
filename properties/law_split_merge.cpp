// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x73706c74u;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOwnRounding = 0x1p-50;  // exp, log and a few sums in double

/// Keys outside a part are cut off, or hidden by the mask.
bool cuts(const AttentionProblem& problem, const Declaration& declaration) {
  return !declaration.has(Feature::mask) || chosen(problem, kTag, 3) != 0;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::lse)) return std::nullopt;
  problem = law_sized(std::move(problem), declaration);
  if (!cuts(problem, declaration)) return problem;
  drop_ranges(problem);
  problem.blocks = false;
  problem.global_tokens = 0;
  // m * kpos: where the positions of a part begin at 0, its lse is of another measure.
  if (problem.alibi == AlibiKind::key_anchored) drop_positions(problem);
  if (!declaration.has(Feature::align_q_offset)) drop_positions(problem);
  problem = make_legal(std::move(problem), declaration);
  if (has_positions(problem) && !declaration.has(Feature::align_q_offset)) return std::nullopt;
  if (has_ranges(problem) || problem.blocks || problem.alibi == AlibiKind::key_anchored)
    return std::nullopt;
  return problem;
}

struct Part {
  std::int64_t first, last;
  bool sink;
};

std::vector<Part> parts_of(const AttentionProblem& problem, bool empty_allowed) {
  const std::int64_t keys = problem.kv_len;
  std::vector<std::int64_t> ends{0, chosen(problem, kTag + 1, keys + 1)};
  if (chosen(problem, kTag + 2, 2) == 0) ends.push_back(chosen(problem, kTag + 3, keys + 1));
  ends.push_back(keys);
  std::sort(ends.begin(), ends.end());
  std::vector<Part> parts;
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    if (ends[n] < ends[n + 1] || empty_allowed) parts.push_back({ends[n], ends[n + 1], false});
  parts[static_cast<std::size_t>(chosen(problem, kTag + 4, std::ssize(parts)))].sink = true;
  return parts;
}

Restatement cut_to(Restatement call, const Part& part) {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = part.first; j < part.last; ++j) keys.push_back(j);
  AttentionProblem& p = call.problem;
  if (has_positions(p)) {
    std::vector<std::int64_t> offsets;
    for (std::int64_t b = 0; b < p.batch; ++b)
      offsets.push_back(rows_of(p, b).segments.front().offset - part.first);
    p.align = Align::q_offset;
    p.q_offset = std::move(offsets);
    for (std::int64_t& prefix : p.prefix_len)
      prefix = std::max<std::int64_t>(prefix - part.first, 0);
  }
  pick_keys(call, keys);
  return call;
}

Restatement mask_to(Restatement call, const Part& part) {
  Dense<std::uint8_t>& mask = call.inputs.mask;
  if (!mask.present) {
    mask = Dense<std::uint8_t>({1, 1, 1, 1});
    mask.values[0] = 1;
  }
  store_axis(mask, 3, call.problem.kv_len);
  for (std::size_t n = 0; n < mask.values.size(); ++n) {
    const auto j = static_cast<std::int64_t>(n) % call.problem.kv_len;
    if (j < part.first || j >= part.last) mask.values[n] = 0;
  }
  return call;
}

/// Row by row: lse = log sum exp lse_s, o = sum exp(lse_s - lse) o_s; a part without visible keys
/// adds nothing. Errors d_s <= t of the lse_s move o by at most
/// sum_s w_s (e^2t - 1) |o_s - o|, since shifting all of them alike moves nothing.
void compare_merged(const LawCall& whole, const std::vector<LawCall>& parts, LawJudge& judge) {
  const auto width = static_cast<std::size_t>(whole.problem.v_head_dim);
  for (std::size_t row = 0; row < num_rows(whole.problem); ++row) {
    if (whole.expected.rows[row] != RowKind::ordinary) continue;
    bool judged = true, counts = whole.telling(row);
    double most = -kInfinity, slack = 0;
    for (const LawCall& part : parts) {
      const RowKind kind = part.expected.rows[row];
      if (kind == RowKind::empty) continue;
      judged &= kind == RowKind::ordinary || kind == RowKind::empty_sink;
      counts &= part.telling(row);
      most = std::max(most, part.seen.lse[row]);
      slack = std::max(slack, allowed_of(part, Output::lse, row));
    }
    if (!judged || !std::isfinite(slack)) continue;
    double sum = 0;
    std::vector<double> weights;
    for (const LawCall& part : parts) {
      const bool empty = part.expected.rows[row] == RowKind::empty;
      weights.push_back(empty ? 0 : std::exp(part.seen.lse[row] - most));
      sum += weights.back();
    }
    for (double& weight : weights) weight /= sum;
    judge.add(Output::lse, row, whole.seen.lse[row], most + std::log(sum),
              allowed_of(whole, Output::lse, row) + slack +
                  kOwnRounding * (1 + std::fabs(whole.expected.lse.value[row])),
              counts);
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t flat = row * width + c;
      const auto part_o = [&](std::size_t s) {
        return weights[s] > 0 && parts[s].expected.rows[row] == RowKind::ordinary
                   ? parts[s].seen.o[flat]
                   : 0;
      };
      double merged = 0, magnitude = 0, expected_most = 0, allowed = 0;
      for (std::size_t s = 0; s < parts.size(); ++s) {
        merged += weights[s] * part_o(s);
        magnitude += weights[s] * std::fabs(part_o(s));
        expected_most = std::max(expected_most, std::fabs(parts[s].expected.o.value[flat]));
      }
      // What overflows by right says nothing; what overflows or is NaN otherwise is wrong.
      if (!(expected_most < limits(whole.problem.dtype).max_finite / 2)) continue;
      if (!std::isfinite(magnitude)) {
        judge.add(Output::o, flat, whole.seen.o[flat], merged, 0, counts);
        continue;
      }
      for (std::size_t s = 0; s < parts.size(); ++s) {
        if (weights[s] == 0) continue;
        allowed += weights[s] * std::expm1(2 * slack) * std::fabs(part_o(s) - merged);
        if (parts[s].expected.rows[row] == RowKind::ordinary)
          allowed += weights[s] * std::exp(2 * slack) * allowed_of(parts[s], Output::o, flat);
      }
      judge.add(Output::o, flat, whole.seen.o[flat], merged,
                allowed + allowed_of(whole, Output::o, flat) + kOwnRounding * magnitude, counts);
    }
  }
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Declaration& declaration = context.declaration();
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  const bool cut = cuts(problem, declaration);
  const auto parts = parts_of(problem, !cut || declaration.has(Feature::empty_dims));
  std::vector<LawCall> calls(parts.size());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    Restatement part = restate(problem, context.inputs(problem));
    part = cut ? cut_to(std::move(part), parts[s]) : mask_to(std::move(part), parts[s]);
    if (!parts[s].sink) part.inputs.sink = {};
    if (!settle(part, declaration)) return not_sayable();
    if (auto result = further_call(context, whole, part, true, calls[s])) return *result;
  }
  LawJudge judge(problem, "merging parts of the keys by lse");
  compare_merged(whole, calls, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_split_merge,
    {
        .id = "LAW-SPLIT-MERGE",
        .sentence =
            "results over two or three parts of the keys, one of them perhaps empty, the sink in "
            "one of them, merge by their lse to the result over all keys",
        .adapt = adapt,
        .check = check,
        .share = 80,
    });

}  // namespace
}  // namespace attest
