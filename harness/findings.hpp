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
  CaseResult result;  ///< on `minimal`
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
  const std::atomic<bool>* interrupted = nullptr;
};

/// Whether the mistake that `minimal` shows can be the one behind `failing`: it has all of its
/// features and at least its sizes, and its dtype, unless that is the simplest declared one.
/// `minimal` being minimal, whatever is smaller in any of these must have failed otherwise.
bool explains(const AttentionProblem& minimal, const AttentionProblem& failing,
              const Declaration& declaration);

/// In a fixed order whatever the number of workers.
std::vector<Finding> find_causes(const WorkList& work, const std::vector<UnitResult>& results,
                                 Workers& workers, const FindingOptions& options);

}  // namespace attest
