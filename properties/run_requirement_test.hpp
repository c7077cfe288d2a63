// SPDX-License-Identifier: Apache-2.0
// A requirement on many cases of a test kernel: how often it was said, and how often broken.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
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

/// The first `cases` of its own problems, or of the shared ones of its operation. Each must be of
/// that operation, legal and declared, and usable as it is.
inline RequirementOutcome run_requirement(const Requirement& requirement, Subject& subject,
                                          std::uint64_t cases) {
  WorkList work;
  work.declaration = subject.declaration();
  work.requirements = {&requirement};
  const int stream =
      requirement.has_own_problems() ? 0 : WorkUnit::shared_stream(requirement.operation);
  RequirementOutcome outcome;
  for (std::uint64_t n = 0; n < cases; ++n) {
    const auto problem = problem_of(work, {stream, static_cast<std::int64_t>(n)});
    if (!problem || requirements_of(work, {stream, 0}, *problem).empty()) continue;
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
