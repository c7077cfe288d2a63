// SPDX-License-Identifier: Apache-2.0
// From failing cases to findings: the first failing case of each kind is shrunk and run again in
// fresh hosts; a failing case that a minimal one explains is counted with it, the next that none
// explains is shrunk in turn.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/search.hpp"
#include "harness/suite.hpp"
#include "harness/unit.hpp"
#include "harness/workers.hpp"

namespace attest {

struct Finding {
  std::size_t requirement = 0;  ///< place in WorkList::requirements
  WorkUnit unit;                ///< where it was found
  Verdict verdict = Verdict::fail;
  Reason reason = Reason::none;
  AttentionProblem found, minimal;
  std::uint64_t needed = 0;  ///< needed_features()
  CaseResult result;         ///< on `minimal`
  bool fully_shrunk = true;
  int reruns = 0, reruns_failed = 0;
  std::vector<std::size_t> cases;    ///< positions in WorkList::units of the cases it stands for
  int adopted_from = -1;             ///< the finding whose minimal case fails this requirement too
  std::string pattern;               ///< which rows, keys and channels of `minimal`
  std::vector<std::string> numbers;  ///< of `minimal`, where it is small
};

struct FindingOptions {
  ShrinkBudget shrink;        ///< for one finding
  double total_seconds = 60;  ///< after it findings stay as drawn
  int reruns = 10;
  int findings_per_group = 3;  ///< a group: one requirement, verdict and reason
  int shrinks_per_group = 6;   ///< several may come to the same minimal case
  const std::atomic<bool>* interrupted = nullptr;
};

/// The features that a mistake needs, as far as a finding tells: those of its minimal case that the
/// case as drawn had too (shrinking dv to 1 makes it differ from d without that being a cause).
/// Asking for lse, the default, is no cause either.
std::uint64_t needed_features(const AttentionProblem& minimal, const AttentionProblem& found);

/// Whether the mistake behind a finding can be the one behind `failing`: it has the needed features
/// and at least the sizes of the minimal case, and its dtype, unless that is the simplest declared
/// one. The case being minimal, what is smaller in any of these must have failed otherwise.
bool explains(const AttentionProblem& minimal, std::uint64_t needed,
              const AttentionProblem& failing, const Declaration& declaration);

/// In a fixed order whatever the number of workers.
std::vector<Finding> find_causes(const WorkList& work, const std::vector<UnitResult>& results,
                                 Workers& workers, const FindingOptions& options);

}  // namespace attest
