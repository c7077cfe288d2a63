// SPDX-License-Identifier: Apache-2.0
#include "harness/outcome.hpp"

#include <fmt/format.h>

#include <string_view>

#include "attest/case_line.hpp"
#include "harness/baseline.hpp"
#include "harness/tally.hpp"

namespace attest {

Failure failure_of(const WorkList& work, const Finding& finding, const std::string& subject) {
  Failure failure;
  failure.requirement = work.requirements[finding.requirement]->id;
  failure.dtype = std::string(name(finding.minimal.dtype));
  failure.verdict = finding.verdict;
  failure.reason = finding.reason;
  failure.also = finding.result.also;
  failure.case_line = print_case(finding.minimal);
  failure.found_case_line = print_case(finding.found);
  failure.index = static_cast<std::uint64_t>(finding.unit.index);
  failure.detail = finding.result.detail;
  failure.worst = finding.result.worst;
  failure.elements_failed = finding.result.elements_failed;
  failure.elements_compared = finding.result.elements_compared;
  failure.pattern = finding.pattern;
  failure.numbers = finding.numbers;
  failure.reruns = finding.reruns;
  failure.reruns_failed = finding.reruns_failed;
  failure.fully_shrunk = finding.fully_shrunk;
  failure.replay = replay_command(failure.case_line, subject, failure.requirement);
  return failure;
}

ExitCode exit_code(const Record& record) {
  if (record.verdict == SuiteVerdict::incomplete) return ExitCode::suite_failed;
  if (record.verdict == SuiteVerdict::not_conformant)
    for (const Failure& failure : record.failures)
      if (is_failure(failure.verdict) && !is_known(record, failure)) return ExitCode::failed;
  for (const DemandResult& demand : record.demands)
    if (!demand.met) return ExitCode::failed;
  for (const ExpectationResult& expectation : record.expectations)
    if (expectation.state == "stale" || expectation.state == "wrong_reason")
      return ExitCode::failed;
  // Where all failures are known, the rest must still have been tested.
  const bool too_little = record.verdict == SuiteVerdict::too_little_tested ||
                          record.scope.refused_share > kMostRefused;
  return too_little ? ExitCode::too_little_tested : ExitCode::conformant;
}

std::string replay_command(const std::string& case_line, const std::string& subject,
                           const std::string& requirement) {
  constexpr std::string_view kHarmless =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%#";
  std::string word;
  bool quote = subject.empty() || subject.front() == '#';
  for (const char c : subject) {
    quote |= kHarmless.find(c) == std::string_view::npos;
    if (c == '\'')
      word.append("'\\''");
    else
      word.push_back(c);
  }
  if (quote) word = fmt::format("'{}'", word);
  return fmt::format("attest replay '{}' {} --requirement {}", case_line, word, requirement);
}

}  // namespace attest
