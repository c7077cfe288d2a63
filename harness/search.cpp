// SPDX-License-Identifier: Apache-2.0
#include "harness/search.hpp"

#include <chrono>
#include <string>
#include <unordered_set>
#include <vector>

#include "attest/case_line.hpp"
#include "harness/complexity.hpp"
#include "harness/simpler.hpp"

namespace attest {
namespace {

/// The candidate as the requirement would use it; nullopt where it has nothing to say about it, the
/// declaration does not cover it, or it is no simpler.
std::optional<AttentionProblem> usable(const Requirement& requirement,
                                       const Declaration& declaration,
                                       const AttentionProblem& candidate,
                                       const AttentionProblem& current) {
  const std::optional<AttentionProblem> used = requirement.usable(candidate, declaration);
  if (!used) return std::nullopt;
  if (!requirement.has_own_problems())
    return not_declared(declaration, candidate) ? std::nullopt : used;
  // What adapt() returns may lie outside the declaration on purpose.
  if (!is_simpler(*used, current) || problem_error(*used)) return std::nullopt;
  return used;
}

}  // namespace

Shrunk shrink(const Requirement& requirement, CaseContext& context, const AttentionProblem& problem,
              const CaseResult& result, const ShrinkBudget& budget) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(budget.seconds));
  Shrunk shrunk;
  shrunk.problem = problem;
  shrunk.result = result;
  std::unordered_set<std::string> tried;  // leaps come up again after every step
  bool progress = true;
  while (progress) {
    progress = false;
    for (const AttentionProblem& candidate : simpler(shrunk.problem)) {
      const auto next = usable(requirement, context.declaration(), candidate, shrunk.problem);
      if (!next || !tried.insert(print_case(*next)).second) continue;
      if (shrunk.tries >= budget.tries || Clock::now() >= end) {
        shrunk.fully = false;
        return shrunk;
      }
      ++shrunk.tries;
      CaseResult again = requirement.check(context, *next);
      if (again.verdict != result.verdict || again.reason != result.reason) continue;
      ++shrunk.accepted;
      shrunk.problem = *next;
      shrunk.result = std::move(again);
      progress = true;
      break;
    }
  }
  return shrunk;
}

}  // namespace attest
