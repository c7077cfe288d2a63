// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "attest/sequences.hpp"
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x77696e64u;

enum class Way : std::uint8_t { huge_left, huge_right, causal_as_window };

/// Wider than all positions lie apart.
std::int64_t huge(const AttentionProblem& problem) {
  std::int64_t reach = std::int64_t{1} << (chosen(problem, kTag + 1, 4) == 0 ? 30 : 20);
  for (const SequenceRows& rows : sequence_rows(problem))
    reach = std::max(reach, std::abs(rows.offset) + problem.q_len + problem.kv_len);
  return reach;
}

/// The same problem said with another window, or nullopt where the declaration has no such thing.
std::optional<AttentionProblem> restated_problem(AttentionProblem problem,
                                                 const Declaration& declaration) {
  const bool no_left = problem.window_left < 0, no_right = problem.window_right < 0;
  std::vector<Way> ways;
  // Global tokens mean nothing without a window, and see the future but for base=causal.
  if (no_left) ways.push_back(Way::huge_left);
  if (no_right) ways.push_back(Way::huge_right);
  if (problem.base == Base::causal && problem.global_tokens == 0) {
    ways.push_back(Way::causal_as_window);
    ways.push_back(Way::causal_as_window);
  }
  if (ways.empty()) return std::nullopt;
  const std::int64_t first = chosen(problem, kTag, std::ssize(ways));
  for (std::int64_t n = 0; n < std::ssize(ways); ++n) {
    AttentionProblem other = problem;
    switch (ways[static_cast<std::size_t>((first + n) % std::ssize(ways))]) {
      case Way::huge_left: other.window_left = huge(problem); break;
      case Way::huge_right: other.window_right = huge(problem); break;
      case Way::causal_as_window:
        other.base = Base::full;
        other.window_right = 0;
        break;
    }
    if (!not_declared(declaration, other)) return other;
  }
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.global_tokens = 0;
  if (problem.window_left >= 0 && problem.window_right >= 0) problem.window_right = -1;
  if (chosen(problem, kTag + 2, 2) == 0 && declaration.has(Feature::causal))
    problem.base = Base::causal;
  problem = law_sized(std::move(problem), declaration);
  if (!restated_problem(problem, declaration)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const auto other = restated_problem(problem, context.declaration());
  if (!other) return not_sayable();
  Restatement restated = restate(*other, context.inputs(problem));
  const char* what = other->base != problem.base ? "saying base=causal as a right window of 0"
                                                 : "a window wider than everything";
  return check_same(context, problem, std::move(restated), {}, true, what);
}

ATTEST_REQUIREMENT(
    law_window,
    {
        .id = "LAW-WINDOW",
        .sentence =
            "a window wider than everything is none, and base=causal is a right window of 0",
        .adapt = adapt,
        .check = check,
        .share = 60,
    });

}  // namespace
}  // namespace attest
