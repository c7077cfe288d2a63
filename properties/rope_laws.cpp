// SPDX-License-Identifier: Apache-2.0
#include "properties/rope_laws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attest/case_line.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"

namespace attest {

bool RopeRun::telling(std::int64_t b, std::int64_t h, std::int64_t i) const {
  if (expected.rows[row_index(problem, b, h, i)] != RowKind::ordinary) return false;
  for (std::int64_t c = 0; c < problem.head_dim; ++c)
    if (!std::isfinite(y(flat(b, h, i, c)))) return false;
  return true;
}

std::optional<CaseResult> run_rope(CaseContext& context, const AttentionProblem& problem,
                                   RopeRun& run) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return result;
  run = {problem, context.inputs(problem), seen, context.expected(problem)};
  return std::nullopt;
}

std::optional<CaseResult> run_rope(CaseContext& context, AttentionProblem problem, Dense<double> x,
                                   RopeRun& run) {
  without_literals(problem);
  problem.batch = x.shape[0];
  problem.num_heads = problem.num_kv_heads = x.shape[1];
  problem.q_len = x.shape[2];
  run.problem = problem;
  run.inputs = {};
  run.inputs.q = std::move(x);
  run.seen = context.call(problem, run.inputs);
  if (auto result = judge_call(run.seen, context.declaration(), problem)) return result;
  run.expected = *context.expected(problem, run.inputs);
  return std::nullopt;
}

std::vector<std::int64_t> positions_of(const AttentionProblem& problem) {
  std::vector<std::int64_t> positions;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t i = 0; i < problem.q_len; ++i)
      positions.push_back(row_position(problem, b, i));
  return positions;
}

AttentionProblem rope_sized(AttentionProblem problem, const Declaration& declaration,
                            std::int64_t least_rows) {
  const std::int64_t rows = problem.q_len;
  problem.batch = std::clamp<std::int64_t>(problem.batch, 1, 3);
  problem.num_heads = problem.num_kv_heads = std::clamp<std::int64_t>(problem.num_heads, 1, 3);
  problem.q_len =
      std::clamp<std::int64_t>(rows, least_rows, std::max<std::int64_t>(least_rows, 12));
  if (problem.q_len != rows) problem.positions.clear();
  problem.head_dim = std::clamp<std::int64_t>(problem.head_dim, 2, 64);
  return make_legal(std::move(problem), declaration);
}

void without_literals(AttentionProblem& problem) {
  problem.literal = {};
  if (problem.data == Family::list) problem.data = Family::gaussian;
}

CaseResult RopeLaw::failure(std::size_t flat, double law, double value,
                            const std::string& what) const {
  return element_failure(
      problem_, Output::o, flat, law, value, Reason::law_broken,
      fmt::format("{} is {} where {} follows", what, print_number(value), print_number(law)));
}

CaseResult RopeLaw::finish() && {
  if (first_) {
    first_->elements_compared = result_.elements_compared;
    first_->elements_failed = result_.elements_failed;
    return std::move(*first_);
  }
  if (result_.elements_compared == 0) {
    result_.verdict = Verdict::not_judged;
    result_.detail = "no row is judged by value";
  }
  return std::move(result_);
}

void compare_turned(const RopeRun& base, const RopeRun& other, const SameRows& same,
                    const std::string& what, RopeLaw& law) {
  const AttentionProblem& p = base.problem;
  const std::int64_t pairs = effective_rope_dim(p) / 2;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        if (!base.telling(b, h, i)) continue;
        const std::size_t there = same.row_of(other, b, h, i);
        if (other.expected.rows[there] != RowKind::ordinary) continue;
        long double square = 0;
        for (std::int64_t c = 0; c < 2 * pairs && same.angle_slack > 0; ++c) {
          const long double x = base.inputs.q.values[base.flat(b, h, i, c)];
          square += x * x;
        }
        const long double slack = same.angle_slack * std::sqrt(square);
        for (std::int64_t c = 0; c < p.head_dim; ++c) {
          const std::int64_t channel =
              same.channel_of.empty() ? c : same.channel_of[static_cast<std::size_t>(c)];
          const std::size_t here = base.flat(b, h, i, c);
          const std::size_t at =
              there * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(channel);
          law.add(here, other.y(at), base.y(here),
                  base.allowed(here) + other.allowed(at) + (c < 2 * pairs ? slack : 0),
                  [&] { return element_name(p, Output::o, here) + what; });
        }
      }
}

}  // namespace attest
