// SPDX-License-Identifier: Apache-2.0
// A requirement on many cases of a test kernel: how often it was said, and how often broken.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "attest/case_line.hpp"
#include "harness/unit.hpp"

namespace attest {

struct RequirementOutcome {
  int judged = 0, broken = 0;
  std::string first;          ///< case and detail of the first broken one
  std::set<CacheKind> kinds;  ///< of caches, where it was judged
};

/// The n-th problem of the only requirement of the list: of its own ones, or of the shared ones of
/// its operation. nullopt: it has nothing to say there.
inline std::optional<AttentionProblem> problem_of_only(const WorkList& work, std::uint64_t n) {
  const Requirement& requirement = *work.requirements.front();
  const int stream =
      requirement.has_own_problems() ? 0 : WorkUnit::shared_stream(requirement.operation);
  const WorkUnit unit{stream, static_cast<std::int64_t>(n)};
  auto problem = problem_of(work, unit);
  if (problem && requirements_of(work, unit, *problem).empty()) problem.reset();
  return problem;
}

/// The first `cases` of its own problems, or of the shared ones of its operation. Each must be of
/// that operation, legal and declared, and usable as it is.
inline RequirementOutcome run_requirement(const Requirement& requirement, Subject& subject,
                                          std::uint64_t cases) {
  WorkList work;
  work.declaration = subject.declaration();
  work.requirements = {&requirement};
  RequirementOutcome outcome;
  for (std::uint64_t n = 0; n < cases; ++n) {
    const auto problem = problem_of_only(work, n);
    if (!problem) continue;
    EXPECT_EQ(problem->operation, requirement.operation);
    EXPECT_FALSE(problem_error(*problem)) << print_case(*problem);
    EXPECT_FALSE(not_declared(work.declaration, *problem)) << print_case(*problem);
    // Shrinking adapts what it has adapted before.
    EXPECT_EQ(requirement.usable(*problem, work.declaration), problem) << print_case(*problem);
    CaseContext context(subject);
    const CaseResult result = requirement.check(context, *problem);
    if (result.verdict == Verdict::not_judged) continue;
    ++outcome.judged;
    outcome.kinds.insert(problem->cache);
    if (result.verdict == Verdict::pass) continue;
    if (outcome.broken++ == 0) outcome.first = print_case(*problem) + "\n" + result.detail;
  }
  return outcome;
}

}  // namespace attest
