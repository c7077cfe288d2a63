// SPDX-License-Identifier: Apache-2.0
// One unit of work: a problem, the requirements that speak of it, and what came out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/suite.hpp"

namespace attest {

/// A case of the list, as small as the record needs it: a full run has two million.
struct CaseOutcome {
  int requirement = 0;  ///< place in WorkList::requirements
  Verdict verdict = Verdict::pass;
  Reason reason = Reason::none;
  std::optional<Output> ratio_output;  ///< of which output `ratio` is
  double ratio = 0;
  std::int64_t elements = 0;
  std::string detail;  ///< of everything but a pass
  bool operator==(const CaseOutcome&) const = default;
};

struct UnitResult {
  bool done = false;
  DType dtype = DType::f32;
  std::int64_t head_dim = 0;
  std::uint64_t features = 0;
  std::uint32_t call_kinds = 0;
  std::vector<CaseOutcome> cases;  ///< empty where the problem was passed by
  Audit audit;
};

/// Limits for one call on this problem: CPU time 50 times what an honest scalar kernel takes, at
/// least 0.1 s, so that a stolen core accuses nobody.
CallLimits call_limits(const AttentionProblem& problem);

/// One requirement on one problem (already adapted). A failure of an advisory requirement is a
/// warning, unless it is an accident; whatever the suite itself throws is Verdict::error.
CaseResult check_case(const Requirement& requirement, CaseContext& context,
                      const AttentionProblem& problem);

UnitResult check_unit(const WorkList& work, const WorkUnit& unit, CaseContext& context);

/// What describes the problem of a unit in its result: dtype, head_dim, features.
void describe_unit(const AttentionProblem& problem, UnitResult& result);

/// Bytes that the suite and the kernel host need together for one problem, saturating at 2^63-1.
std::int64_t case_bytes(const AttentionProblem& problem);
/// One line with both numbers where this machine has less; nullopt where it fits.
std::optional<std::string> memory_error(const AttentionProblem& problem);

}  // namespace attest
