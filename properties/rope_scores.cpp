// SPDX-License-Identifier: Apache-2.0
// What the rotary embedding is for: scores q.k between turned rows know the distance of their
// positions alone.
#include <fmt/format.h>

#include <cmath>

#include "harness/data.hpp"
#include "properties/rope_laws.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x726f7065u;

struct Score {
  long double value = 0, allowed = 0;
};

/// Of rows i and j, and what the tolerances of their channels allow of it.
Score score(const RopeRun& run, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  Score sum;
  for (std::int64_t c = 0; c < run.problem.head_dim; ++c) {
    const std::size_t left = run.flat(b, h, i, c), right = run.flat(b, h, j, c);
    const long double q = run.y(left), k = run.y(right);
    const long double of_q = run.allowed(left), of_k = run.allowed(right);
    sum.value += q * k;
    sum.allowed += of_q * std::fabs(k) + of_k * std::fabs(q) + of_q * of_k +
                   0x1p-60L * static_cast<long double>(run.problem.head_dim) * std::fabs(q * k);
  }
  return sum;
}

void add(const RopeRun& run, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
         const Score& law, const Score& value, const std::string& what, RopeLaw& judge) {
  judge.add(run.flat(b, h, i, 0), law.value, value.value, law.allowed + value.allowed, [&] {
    return fmt::format("the score of rows {} and {} of sequence {}, head {}{}", i, j, b, h, what);
  });
}

std::optional<AttentionProblem> two_rows(AttentionProblem problem, const Declaration& declaration) {
  problem = rope_sized(std::move(problem), declaration, 2);
  if (problem.q_len < 2) return std::nullopt;
  return problem;
}

CaseResult check_shift(CaseContext& context, const AttentionProblem& problem) {
  constexpr std::int64_t kShifts[] = {1, 2, 7, 64, 1000, -3};
  const std::int64_t shift = kShifts[mix(problem.seed, kTag, 0, 0, 0, 0) % std::size(kShifts)];
  RopeRun base, moved;
  if (auto result = run_rope(context, problem, base)) return *result;
  AttentionProblem elsewhere = problem;
  elsewhere.positions = positions_of(problem);
  elsewhere.q_offset.clear();
  for (std::int64_t& position : elsewhere.positions) position += shift;
  if (auto result = run_rope(context, elsewhere, base.inputs.q, moved)) return *result;

  RopeLaw law(problem);
  const std::string what = fmt::format(" after a shift of all positions by {}", shift);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t j = 0; j < problem.q_len; ++j)
          if (base.telling(b, h, i) && base.telling(b, h, j) && moved.telling(b, h, i) &&
              moved.telling(b, h, j))
            add(base, b, h, i, j, score(base, b, h, i, j), score(moved, b, h, i, j), what, law);
  return std::move(law).finish();
}

/// Rows 0 and 1 again and again, always as far apart, at other places.
CaseResult check_relative(CaseContext& context, const AttentionProblem& problem) {
  constexpr std::int64_t kPlaces = 5;
  const Dense<double>& rows = context.inputs(problem).q;
  Dense<double> x({problem.batch, problem.num_heads, 2 * kPlaces, problem.head_dim});
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < 2 * kPlaces; ++i)
        for (std::int64_t c = 0; c < problem.head_dim; ++c)
          x.at(b, h, i, c) = rows.at(b, h, i % 2, c);
  AttentionProblem repeated = problem;
  repeated.positions.clear();
  repeated.q_offset.clear();
  const auto draw = [&](std::uint64_t of, std::int64_t n) {
    return static_cast<std::int64_t>(
        mix(problem.seed, kTag, of, static_cast<std::uint64_t>(n), 0, 0) % 40);
  };
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t n = 0; n < kPlaces; ++n) {
      const std::int64_t place = row_position(problem, b, 0) + 3 * n + draw(1, n);
      repeated.positions.push_back(place);
      repeated.positions.push_back(place - 20 + draw(2, b));
    }
  RopeRun run;
  if (auto result = run_rope(context, repeated, x, run)) return *result;
  RopeLaw law(run.problem);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 2; i < 2 * kPlaces; i += 2)
        if (run.telling(b, h, 0) && run.telling(b, h, 1) && run.telling(b, h, i) &&
            run.telling(b, h, i + 1))
          add(run, b, h, i, i + 1, score(run, b, h, 0, 1), score(run, b, h, i, i + 1),
              ", which are rows 0 and 1 elsewhere, as far apart,", law);
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(rope_shift,
                   {
                       .id = "ROPE-SHIFT",
                       .sentence = "a shift of all positions changes no score between turned rows",
                       .operation = Operation::rope,
                       .adapt = two_rows,
                       .check = check_shift,
                       .share = 60,
                   });
ATTEST_REQUIREMENT(rope_relative,
                   {
                       .id = "ROPE-RELATIVE",
                       .sentence = "the score of two turned rows depends on the distance of their "
                                   "positions alone",
                       .operation = Operation::rope,
                       .adapt = two_rows,
                       .check = check_relative,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
