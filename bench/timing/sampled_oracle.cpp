// SPDX-License-Identifier: Apache-2.0
#include "bench/timing/sampled_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attest/names.hpp"
#include "harness/appended.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/judge.hpp"
#include "reference/expected.hpp"
#include "reference/visible.hpp"

namespace attest {

namespace {

constexpr std::int64_t kMostTriples = std::int64_t{1} << 29;  // about a second of the oracle
constexpr std::int64_t kStripRows = 4;
constexpr int kStrips = 8;

bool can_be_cut(const AttentionProblem& p) {
  return p.operation == Operation::forward && p.mask == MaskKind::none && !p.blocks &&
         p.bias == BiasKind::none && p.dropout_p == 0 && p.seqlens_q.empty() &&
         p.seqlens_k.empty() && p.left_pad_q.empty() && p.left_pad_k.empty() &&
         p.cu_seqlens_q.empty() && p.data != Family::list;
}

/// Rows [first, first + count) of head h of sequence b.
Dense<double> rows_of_head(const Dense<double>& all, std::int64_t b, std::int64_t h,
                           std::int64_t first, std::int64_t count) {
  Dense<double> rows({1, 1, count, all.shape[3]});
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < all.shape[3]; ++c)
      rows.at(0, 0, i, c) = all.at(b, h, first + i, c);
  return rows;
}

Dense<double> one_number(double value) {
  Dense<double> number({1, 1, 1, 1});
  number.values[0] = value;
  return number;
}

std::optional<std::string> failure_of(const CaseResult& result) {
  if (!is_failure(result.verdict)) return std::nullopt;
  if (!result.worst) return result.detail;
  return fmt::format("{}[{}]: expected {:.9g}, got {:.9g}, {:.3g} times the tolerance",
                     result.worst->tensor, fmt::join(result.worst->index, ","),
                     result.worst->expected, result.worst->actual, result.worst->ratio);
}

std::optional<std::string> judge_whole(const AttentionProblem& problem,
                                       const AttentionInputs& inputs,
                                       const PrecisionProfile& profile, const Observation& seen,
                                       SharedAnswers& answers) {
  const std::shared_ptr<const Expected> kept = answers.expected(problem, inputs, profile);
  const Expected& expected = *kept;
  const bool generic = is_generic(problem);
  if (problem.operation == Operation::backward) {
    for (std::size_t n = 0; n < kNumGradients; ++n) {
      const auto gradient = static_cast<Gradient>(n);
      if (!wants_gradient(problem, gradient)) continue;
      if (auto why = failure_of(judge_gradient(problem, inputs, expected, gradient,
                                               seen.gradients[n].values, generic)))
        return why;
    }
    return std::nullopt;
  }
  if (problem.operation == Operation::decode) {
    std::int64_t compared = 0;
    if (const auto wrong = wrong_appended(problem, inputs, profile, seen, compared))
      return fmt::format("element {} of the new rows of {}: expected {:.9g}, got {:.9g}",
                         wrong->flat, name(wrong->output), wrong->expected, wrong->actual);
  }
  if (auto why = failure_of(judge_values(problem, expected, Output::o, seen.o, generic)))
    return why;
  if (!problem.want_lse || seen.lse.empty()) return std::nullopt;
  return failure_of(judge_values(problem, expected, Output::lse, seen.lse, generic));
}

std::optional<std::string> judge_strip(const AttentionProblem& problem,
                                       const AttentionInputs& inputs,
                                       const PrecisionProfile& profile, const Observation& seen,
                                       SharedAnswers& answers, const Strip& strip) {
  const auto cut = cut_strip(problem, inputs, strip);
  Observation part;
  const std::int64_t row = (strip.b * problem.num_heads + strip.h) * problem.q_len + strip.first;
  const auto copy = [](const std::vector<double>& all, std::int64_t first, std::int64_t count) {
    return std::vector<double>(all.begin() + first, all.begin() + first + count);
  };
  part.o = copy(seen.o, row * problem.v_head_dim, strip.rows * problem.v_head_dim);
  if (problem.want_lse && !seen.lse.empty()) part.lse = copy(seen.lse, row, strip.rows);
  auto why = judge_whole(cut->problem, cut->inputs, profile, part, answers);
  if (why)
    why = fmt::format("row {} of head {} of sequence {}: {}", strip.first, strip.h, strip.b, *why);
  return why;
}

}  // namespace

std::optional<StripProblem> cut_strip(const AttentionProblem& problem,
                                      const AttentionInputs& inputs, const Strip& strip) {
  if (!can_be_cut(problem)) return std::nullopt;
  StripProblem cut;
  AttentionProblem& p = cut.problem;
  p = problem;
  p.batch = p.num_heads = p.num_kv_heads = 1;
  p.q_len = strip.rows;
  p.align = Align::q_offset;
  const Segment segment = rows_of(problem, strip.b).segments.at(0);
  p.q_offset = {qpos(segment, strip.first)};
  p.prefix_len.clear();
  if (p.base == Base::prefix) p.prefix_len = {segment.prefix_len};
  const std::int64_t g = kv_head(problem, strip.h);
  cut.inputs.q = rows_of_head(inputs.q, strip.b, strip.h, strip.first, strip.rows);
  cut.inputs.k = rows_of_head(inputs.k, strip.b, g, 0, problem.kv_len);
  cut.inputs.v = rows_of_head(inputs.v, strip.b, g, 0, problem.kv_len);
  if (inputs.slopes.present)
    cut.inputs.slopes =
        one_number(inputs.slopes.values[inputs.slopes.broadcast_index(strip.b, strip.h, 0, 0)]);
  if (inputs.sink.present) cut.inputs.sink = one_number(inputs.sink.at(0, strip.h, 0, 0));
  return cut;
}

std::optional<std::string> judge_for_timing(const AttentionProblem& problem,
                                            const AttentionInputs& inputs,
                                            const PrecisionProfile& profile,
                                            const Observation& seen, SharedAnswers& answers) {
  if (triples(problem) <= kMostTriples || !can_be_cut(problem))
    return judge_whole(problem, inputs, profile, seen, answers);
  // The first and the last rows, and others from everywhere.
  for (int n = 0; n < kStrips; ++n) {
    const std::uint64_t bits = mix(problem.seed, static_cast<std::uint64_t>(n), 0, 0, 0, 0);
    Strip strip;
    strip.rows = std::min(kStripRows, problem.q_len);
    strip.b = static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(problem.batch));
    strip.h =
        static_cast<std::int64_t>((bits >> 16) % static_cast<std::uint64_t>(problem.num_heads));
    const std::int64_t places = problem.q_len - strip.rows + 1;
    strip.first =
        n == 0   ? 0
        : n == 1 ? places - 1
                 : static_cast<std::int64_t>((bits >> 32) % static_cast<std::uint64_t>(places));
    if (auto why = judge_strip(problem, inputs, profile, seen, answers, strip)) return why;
  }
  return std::nullopt;
}

}  // namespace attest
