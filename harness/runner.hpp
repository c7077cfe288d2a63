// SPDX-License-Identifier: Apache-2.0
// The runner: which cases, in which order, on how many hosts, and the record that comes out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/expectations.hpp"
#include "harness/search.hpp"
#include "harness/subject.hpp"

namespace attest {

struct Shard {
  int index = 1, count = 1;
};

struct RunOptions {
  SubjectSpec subject;
  std::string suite = "quick";          ///< smoke, quick, full, also "quick@1"
  std::vector<std::string> case_lines;  ///< instead of a suite
  std::string cases_name;               ///< where they came from
  std::uint64_t seed = 1;
  int jobs = 1;
  Shard shard;
  double time_budget_seconds = 0;  ///< 0: none
  std::string filter;              ///< glob over requirement ids; "" = all
  bool stop_at_first = false;
  std::vector<Expectation> expectations;
  std::string journal_path;  ///< "": no journal
  bool resume = false;
  ShrinkBudget shrink;
  int reruns = 10;
  const std::atomic<bool>* interrupted = nullptr;
};

struct Progress {
  std::int64_t done = 0, total = 0, failed = 0;
  double seconds = 0;
};

/// What stopped a run before it could give a verdict.
struct RunError {
  std::string message;
  bool machine = false;  ///< exit 3, else exit 2
};

/// Runs the whole thing. `progress` may be empty; it is called from one thread at a time.
Result<Record> run_suite(const RunOptions& options,
                         const std::function<void(const Progress&)>& progress, RunError& error);

/// The exit code that the record deserves.
ExitCode exit_code(const Record& record);

}  // namespace attest
