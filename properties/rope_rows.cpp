// SPDX-License-Identifier: Apache-2.0
// A row is turned by its own position, wherever it stands.
#include <algorithm>

#include "properties/rope_laws.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.batch = std::max<std::int64_t>(problem.batch, 2);
  problem.num_heads = std::max<std::int64_t>(problem.num_heads, 2);
  if (std::ssize(problem.q_offset) != problem.batch) problem.q_offset.clear();
  return rope_sized(std::move(problem), declaration, 2);
}

std::size_t first_row(const RopeRun& other, std::int64_t, std::int64_t, std::int64_t i) {
  return row_index(other.problem, 0, 0, i);
}
std::size_t mirrored(const RopeRun& other, std::int64_t b, std::int64_t h, std::int64_t i) {
  return row_index(other.problem, other.problem.batch - 1 - b, h, other.problem.q_len - 1 - i);
}

/// The rows of one head in every head of every sequence, at the same positions.
CaseResult check_equal(CaseContext& context, const AttentionProblem& problem) {
  Dense<double> x = context.inputs(problem).q;
  AttentionProblem everywhere = problem;
  everywhere.positions.clear();
  everywhere.q_offset.clear();
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t i = 0; i < problem.q_len; ++i)
      everywhere.positions.push_back(row_position(problem, 0, i));
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t c = 0; c < problem.head_dim; ++c) x.at(b, h, i, c) = x.at(0, 0, i, c);
  }
  RopeRun run;
  if (auto result = run_rope(context, everywhere, std::move(x), run)) return *result;
  RopeLaw law(run.problem);
  compare_turned(run, run, {first_row, {}, 0},
                 ", the row of sequence 0, head 0, at the same position,", law);
  return std::move(law).finish();
}

CaseResult check_order(CaseContext& context, const AttentionProblem& problem) {
  RopeRun base, turned;
  if (auto result = run_rope(context, problem, base)) return *result;
  Dense<double> x = base.inputs.q;
  AttentionProblem reversed = problem;
  reversed.positions = positions_of(problem);
  reversed.q_offset.clear();
  std::reverse(reversed.positions.begin(), reversed.positions.end());
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t c = 0; c < problem.head_dim; ++c)
          x.at(b, h, i, c) = base.inputs.q.at(problem.batch - 1 - b, h, problem.q_len - 1 - i, c);
  if (auto result = run_rope(context, reversed, std::move(x), turned)) return *result;
  RopeLaw law(problem);
  compare_turned(base, turned, {mirrored, {}, 0}, ", with all rows and sequences in reverse,", law);
  return std::move(law).finish();
}

/// As each step of decoding makes it: one row, at its offset.
CaseResult check_steps(CaseContext& context, const AttentionProblem& problem) {
  RopeRun base;
  if (auto result = run_rope(context, problem, base)) return *result;
  RopeLaw law(problem);
  for (std::int64_t i = 0; i < problem.q_len; ++i) {
    Dense<double> x({problem.batch, problem.num_heads, 1, problem.head_dim});
    AttentionProblem step = problem;
    step.positions.clear();
    step.q_offset.clear();
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      step.q_offset.push_back(row_position(problem, b, i));
      for (std::int64_t h = 0; h < problem.num_heads; ++h)
        for (std::int64_t c = 0; c < problem.head_dim; ++c)
          x.at(b, h, 0, c) = base.inputs.q.at(b, h, i, c);
    }
    RopeRun alone;
    if (auto result = run_rope(context, step, std::move(x), alone)) return *result;
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t h = 0; h < problem.num_heads; ++h) {
        if (!base.telling(b, h, i) || !alone.telling(b, h, 0)) continue;
        for (std::int64_t c = 0; c < problem.head_dim; ++c) {
          const std::size_t here = base.flat(b, h, i, c), there = alone.flat(b, h, 0, c);
          law.add(here, alone.y(there), base.y(here), base.allowed(here) + alone.allowed(there),
                  [&] { return element_name(problem, Output::o, here) + ", alone in a call,"; });
        }
      }
  }
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(rope_rows, {
                                  .id = "ROPE-ROWS",
                                  .sentence = "equal rows at equal positions are turned alike in "
                                              "every sequence and head",
                                  .operation = Operation::rope,
                                  .adapt = adapt,
                                  .check = check_equal,
                                  .share = 60,
                              });
ATTEST_REQUIREMENT(rope_order,
                   {
                       .id = "ROPE-ORDER",
                       .sentence = "every row is turned by its own position: rows and sequences in "
                                   "another order, with their positions, give the same rows",
                       .operation = Operation::rope,
                       .adapt = adapt,
                       .check = check_order,
                       .share = 60,
                   });
ATTEST_REQUIREMENT(
    rope_offset, {
                     .id = "ROPE-OFFSET",
                     .sentence = "a row alone in a call, at its offset as a step of decoding makes "
                                 "it, is turned as among the others",
                     .operation = Operation::rope,
                     .adapt = adapt,
                     .check = check_steps,
                     .share = 30,
                 });

}  // namespace
}  // namespace attest
