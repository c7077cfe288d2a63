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
#include "harness/outcome.hpp"
#include "harness/search.hpp"
#include "harness/subject.hpp"
#include "harness/suite.hpp"
#include "harness/workers.hpp"

namespace attest {

struct RunOptions {
  SubjectSpec subject;
  std::string subject_text;             ///< as the user names it, for the replay command
  std::string command;                  ///< the command line, for the record
  std::string suite = "quick";          ///< smoke, quick, full
  std::vector<std::string> case_lines;  ///< instead of a suite
  std::vector<int> case_line_numbers;   ///< where they stand in cases_name; empty: 1, 2, ...
  std::string cases_name;               ///< where they came from; "": no case file
  /// For each of case_lines the one requirement to check on it; empty: all that speak of it.
  std::vector<std::string> case_requirements;
  bool last_failed = false;  ///< the cases are those that failed in the last run
  std::uint64_t seed = 1;
  int jobs = 1;
  Shard shard;
  double time_budget_seconds = 0;  ///< for the list of cases; 0: none
  /// Problems that take longer, by the kernel's pace, are not judged; 0: all are.
  double most_call_seconds = 0;
  double most_lost_seconds = 30;   ///< to problems that hang or eat memory; they end the list
  double finding_seconds = 30;     ///< for shrinking and reruns; after it causes stay as drawn
  bool cut_is_incomplete = false;  ///< a budget that cuts the list leaves no verdict (CI)
  std::string filter;              ///< glob over requirement ids; "" = all
  bool stop_at_first = false;
  std::vector<Expectation> expectations;
  std::string journal_path;  ///< "": no journal
  bool resume = false;
  bool keep_journal = true;  ///< false: deleted once the run is complete
  ShrinkBudget shrink;
  int reruns = 10;
  const std::atomic<bool>* interrupted = nullptr;

  // Seams for tests; empty: open_in_host(subject), and all registered requirements.
  OpenSubject open;
  std::vector<const Requirement*> requirements;

  SharedAnswers* shared = nullptr;  ///< with the runs beside this one
};

struct Progress {
  std::int64_t done = 0, total = 0, failed = 0;  ///< problems; failing cases
  bool shrinking = false;                        ///< the list is done, findings are worked on
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

/// The cases that run_suite() would run, one "ID case line" each, in the order of the list.
Result<std::vector<std::string>> list_cases(const RunOptions& options, RunError& error);

}  // namespace attest
