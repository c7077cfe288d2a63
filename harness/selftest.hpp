// SPDX-License-Identifier: Apache-2.0
// The suite against kernels whose mistakes are known, and against honest ones: which requirement
// catches what, how soon, and who is accused.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/detection.hpp"
#include "harness/catalogue.hpp"
#include "harness/runner.hpp"

namespace attest {

/// An honest kernel from elsewhere than the catalogue.
struct HonestKernel {
  std::string id, subject_text;
  SubjectSpec subject;
};

struct SelftestOptions {
  Catalogue catalogue;
  std::string library_text;  ///< as the user names it, for replay commands
  std::vector<HonestKernel> more_honest;
  std::string suite = "quick", honest_suite = "smoke";
  std::uint64_t seed = 1;
  int jobs = 1;
  std::string filter;                 ///< glob over ids; "": all
  std::optional<DType> dtype;         ///< this one alone
  bool honest_only = false;           ///< no faults
  std::optional<Declaration> within;  ///< only faults that show in this scope
  /// Problems that are still looked at after the first catch in the dtype that is shrunk, so that
  /// the matrix shows more than the quickest requirement. In the others the first catch ends the
  /// list; without a catch it is followed to its end.
  std::int64_t problems_after_catch = 600;
  ShrinkBudget shrink{4000, 3.0};
  const std::atomic<bool>* interrupted = nullptr;
  std::vector<Detection> done;  ///< of an earlier run: not tested again
  /// Called with each kernel as it is done, from one thread at a time.
  std::function<void(const Detection&)> on_result;
  std::vector<const Requirement*> requirements;  ///< empty: all that are registered
  SharedAnswers* shared = nullptr;  ///< of all kernels; nullptr: run_selftest() makes its own
};

struct SelftestProgress {
  std::int64_t done = 0, total = 0;  ///< kernels
  std::int64_t escaped = 0, accused = 0;
  double seconds = 0;
};

/// Every kernel that the options leave, in the order of the catalogue, faults last. What an
/// interruption cut is missing. `error.machine`: hosts do not start or the suite itself failed.
Result<std::vector<Detection>> run_selftest(
    const SelftestOptions& options, const std::function<void(const SelftestProgress&)>& progress,
    RunError& error);

}  // namespace attest
