// SPDX-License-Identifier: Apache-2.0
// Scaled positions and a scaled base are other positions and another base.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/rope_laws.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7363616cu;

std::optional<std::string> skip_linear(const Declaration& declaration) {
  if (!declaration.has(Feature::rope_linear)) return "not declared: rope_scaling=linear";
  return std::nullopt;
}
std::optional<std::string> skip_ntk(const Declaration& declaration) {
  if (!declaration.has(Feature::rope_ntk)) return "not declared: rope_scaling=ntk";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt_linear(AttentionProblem problem,
                                             const Declaration& declaration) {
  if (problem.rope_scale != 2 && problem.rope_scale != 4)
    problem.rope_scale = mix(problem.seed, kTag, 0, 0, 0, 0) % 2 == 0 ? 2 : 4;
  // The case stands at `scale` times its positions: within the reach of a table.
  problem.q_offset.clear();
  problem.positions.clear();
  return rope_sized(std::move(problem), declaration);
}

std::optional<AttentionProblem> adapt_ntk(AttentionProblem problem,
                                          const Declaration& declaration) {
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 4);
  if (problem.rope_ntk == 1) problem.rope_ntk = 2;
  if (effective_rope_dim(problem) <= 2) problem.rope_dim = 0;
  problem = rope_sized(std::move(problem), declaration);
  if (problem.rope_ntk == 1) return std::nullopt;
  return problem;
}

std::size_t same_row(const RopeRun& other, std::int64_t b, std::int64_t h, std::int64_t i) {
  return row_index(other.problem, b, h, i);
}

/// Scale s at position s p is scale 1 at position p.
CaseResult check_linear(CaseContext& context, const AttentionProblem& problem) {
  RopeRun plain, scaled;
  const Dense<double>& x = context.inputs(problem).q;
  AttentionProblem near = problem, far = problem;
  near.rope_scale = 1;
  far.q_offset.clear();
  for (const std::int64_t position : positions_of(problem))
    far.positions.push_back(position * static_cast<std::int64_t>(problem.rope_scale));
  if (auto result = run_rope(context, near, x, plain)) return *result;
  if (auto result = run_rope(context, far, x, scaled)) return *result;
  RopeLaw law(plain.problem);
  compare_turned(scaled, plain, {same_row, {}, 0},
                 ", at its position times rope_scale, against the same without either,", law);
  return std::move(law).finish();
}

/// base' = base ntk^(R/(R-2)). The power is rounded to a double, twice: angles may differ by as
/// many of their roundings.
CaseResult check_ntk(CaseContext& context, const AttentionProblem& problem) {
  RopeRun stretched, larger;
  if (auto result = run_rope(context, problem, stretched)) return *result;
  const auto dims = static_cast<double>(effective_rope_dim(problem));
  AttentionProblem other = problem;
  other.rope_ntk = 1;
  other.rope_base = problem.rope_base * std::pow(problem.rope_ntk, dims / (dims - 2));
  if (auto result = run_rope(context, other, stretched.inputs.q, larger)) return *result;
  std::int64_t farthest = 0;
  for (const std::int64_t position : positions_of(problem))
    farthest = std::max(farthest, std::abs(position));
  RopeLaw law(problem);
  compare_turned(stretched, larger, {same_row, {}, 0x1p-50 * static_cast<double>(farthest)},
                 ", against the same with the base that rope_ntk makes,", law);
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(
    rope_linear,
    {
        .id = "ROPE-LINEAR",
        .sentence = "linear scaling by s at position s p turns as no scaling at position p",
        .operation = Operation::rope,
        .skip = skip_linear,
        .adapt = adapt_linear,
        .check = check_linear,
        .share = 40,
    });
ATTEST_REQUIREMENT(rope_ntk,
                   {
                       .id = "ROPE-NTK",
                       .sentence = "NTK scaling by f turns as a base that is f^(R/(R-2)) larger",
                       .operation = Operation::rope,
                       .skip = skip_ntk,
                       .adapt = adapt_ntk,
                       .check = check_ntk,
                       .share = 40,
                   });

}  // namespace
}  // namespace attest
