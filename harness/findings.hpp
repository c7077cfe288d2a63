// SPDX-License-Identifier: Apache-2.0
// From failing cases to findings: the first failing case of each kind is shrunk and run again in
// fresh hosts; a failing case that a minimal one explains is counted with it, the next that none
// explains is shrunk in turn.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/search.hpp"
#include "harness/suite.hpp"
#include "harness/unit.hpp"
#include "harness/workers.hpp"

namespace attest {

/// What a mistake needs to show, as far as a finding tells: what its minimal case has, as far as
/// the case as drawn had it too. (Shrinking dv to 1 makes it differ from d without that being a
/// cause, and asking for lse, the default, is none either.) The case being minimal, what lacks any
/// of it must have failed otherwise.
struct Needs {
  std::uint64_t features = 0;
  /// At least these: batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, v_head_dim.
  std::array<std::int64_t, 7> sizes{};
  std::optional<DType> dtype;  ///< nullopt: shown in the simplest declared one, so in any
  bool operator==(const Needs&) const = default;
};
Needs needs_of(const AttentionProblem& minimal, const AttentionProblem& found,
               const Declaration& declaration);
/// What two ways to the same minimal case both need.
Needs common_needs(const Needs& a, const Needs& b);

struct Finding {
  std::size_t requirement = 0;  ///< place in WorkList::requirements
  WorkUnit unit;                ///< where it was found
  Verdict verdict = Verdict::fail;
  Reason reason = Reason::none;
  AttentionProblem found, minimal;
  Needs needs;
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
  double total_seconds = 30;  ///< after it findings stay as drawn
  int reruns = 10;
  int findings_per_group = 3;  ///< a group: one requirement, verdict and reason
  int shrinks_per_group = 6;   ///< several may come to the same minimal case
  const std::atomic<bool>* interrupted = nullptr;
};

/// "feature softcap" of "accepts feature softcap, which it does not declare"; "" of other
/// sentences.
std::string accepted_what(const std::string& detail);

/// A mistake in what is computed shows as one or the other of these.
bool is_about_values(Reason reason);

/// How much a verdict and reason say of a mistake, the most first.
int severity(Verdict verdict, Reason reason);

/// The mistake behind a finding can be the one behind `failing`.
bool explains(const Needs& needs, const AttentionProblem& failing);

/// In a fixed order whatever the number of workers.
std::vector<Finding> find_causes(const WorkList& work, const std::vector<UnitResult>& results,
                                 Workers& workers, const FindingOptions& options);

}  // namespace attest
