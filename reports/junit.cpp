// SPDX-License-Identifier: Apache-2.0
// The record as JUnit XML: one test case for each requirement and dtype, and one for the verdict as
// a whole, which alone can fail where too little was tested.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "reports/format.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

enum class Outcome { passed, failed, errored, skipped };

struct TestCase {
  std::string name;
  Outcome outcome = Outcome::passed;
  std::string type;     ///< "fail wrong_value"
  std::string message;  ///< one line
  std::string body;
};

std::string failure_type(const Failure& failure) {
  std::string type(name(failure.verdict));
  return failure.reason == Reason::none ? type : fmt::format("{} {}", type, name(failure.reason));
}

std::string failure_body(const Failure& failure) {
  std::string text = fmt::format("{}: {}\nsmallest case: {}\n", failure_type(failure),
                                 plain(failure.detail), plain(failure.case_line));
  for (const std::string& line : {worst_sentence(failure), where_sentence(failure)})
    if (!line.empty()) text += line + '\n';
  for (const std::string& line : failure.numbers) text += plain(line) + '\n';
  return text + fmt::format("{}\nreplay: {}\n", reruns_sentence(failure), plain(failure.replay));
}

/// Expected, or of a cause that the baseline has too.
bool is_known(const Record& record, const Failure& failure) {
  const auto index = static_cast<std::size_t>(failure.cause);
  return failure.expected ||
         (index >= 1 && index <= record.causes.size() && record.causes[index - 1].known);
}

/// A known failure is no reason to turn a build red; a new one beside it is.
void judge(const Record& record, TestCase& test, const Counts& counts,
           const std::vector<const Failure*>& failures) {
  const Failure* first = nullptr;
  for (const Failure* failure : failures)
    if (is_failure(failure->verdict) &&
        (!first || (is_known(record, *first) && !is_known(record, *failure))))
      first = failure;
  if (counts.failures() > 0) {
    const bool known = first && is_known(record, *first);
    test.outcome = known ? Outcome::skipped : Outcome::failed;
    test.type = first ? failure_type(*first) : "fail";
    test.message = fmt::format("{}{} of {} fail{}{}",
                               !known            ? ""
                               : first->expected ? "expected: "
                                                 : "known from the baseline: ",
                               grouped(counts.failures()), counted(counts.total(), "case"),
                               first ? ": " : "", first ? plain(first->detail) : "");
    for (const Failure* failure : failures) test.body += failure_body(*failure) + '\n';
  } else if (counts.error > 0) {
    test.outcome = Outcome::errored;
    test.type = "error";
    test.message = fmt::format("{} of {} could not be run", grouped(counts.error),
                               counted(counts.total(), "case"));
  } else if (counts.pass + counts.warn == 0) {
    test.outcome = Outcome::skipped;
    test.message = fmt::format("nothing judged: {}", verdict_counts(counts));
  }
}

/// Those of the dtype; where only other dtypes were followed up, theirs: it is the same
/// requirement.
std::vector<const Failure*> failures_of(const Record& record, const std::string& requirement,
                                        const std::string& dtype) {
  std::vector<const Failure*> own, all;
  for (const Failure& failure : record.failures) {
    if (failure.requirement != requirement) continue;
    all.push_back(&failure);
    if (failure.dtype == dtype) own.push_back(&failure);
  }
  return own.empty() ? all : own;
}

std::vector<TestCase> requirement_cases(const Record& record) {
  std::vector<TestCase> tests;
  for (const RequirementResult& requirement : record.requirements) {
    const std::string id = plain(requirement.id);
    if (requirement.by_dtype.empty())
      tests.push_back({.name = id,
                       .outcome = Outcome::skipped,
                       .type = "",
                       .message = requirement.skipped.empty() ? "no case of this run"
                                                              : plain(requirement.skipped),
                       .body = ""});
    for (const auto& [dtype, counts] : requirement.by_dtype) {
      const std::vector<const Failure*> failures = failures_of(record, requirement.id, dtype);
      TestCase test{.name = fmt::format("{} {}", id, plain(dtype))};
      judge(record, test, counts, failures);
      tests.push_back(std::move(test));
    }
  }
  return tests;
}

TestCase verdict_case(const Record& record) {
  TestCase test{.name = "verdict"};
  const std::vector<std::string> broken = broken_promises(record);
  const bool all_known = std::all_of(
      record.failures.begin(), record.failures.end(),
      [&record](const Failure& f) { return !is_failure(f.verdict) || is_known(record, f); });
  if (record.verdict == SuiteVerdict::incomplete) {
    test.outcome = Outcome::errored;
  } else if (record.verdict == SuiteVerdict::too_little_tested || !broken.empty()) {
    test.outcome = Outcome::failed;
  } else if (record.verdict == SuiteVerdict::not_conformant) {
    test.outcome = all_known && !record.failures.empty() ? Outcome::skipped : Outcome::failed;
  }
  test.type = name(record.verdict);
  test.message = verdict_sentence(record);
  test.body =
      fmt::format("{}\n{}\n", scope_sentence(record), plain(join(record.scope.not_tested, "; ")));
  for (const std::string& line : broken) test.body += line + '\n';
  return test;
}

std::string_view element_name(Outcome outcome) {
  return outcome == Outcome::failed ? "failure" : outcome == Outcome::errored ? "error" : "skipped";
}

std::string test_text(const TestCase& test, const std::string& class_name) {
  const std::string head = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"0\"",
                                       xml_escape(class_name), xml_escape(test.name));
  if (test.outcome == Outcome::passed) return head + "/>\n";
  std::string text = fmt::format("{}>\n      <{} message=\"{}\"", head, element_name(test.outcome),
                                 xml_escape(test.message));
  if (test.outcome == Outcome::skipped)
    text += "/>\n";
  else
    text += fmt::format(" type=\"{}\">{}</{}>\n", xml_escape(test.type), xml_text(test.body),
                        element_name(test.outcome));
  return text + "    </testcase>\n";
}

std::string property(std::string_view key, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", key, xml_escape(value));
}

std::string write(const Record& record) {
  const std::string subject = subject_name(record);
  std::vector<TestCase> tests = requirement_cases(record);
  tests.push_back(verdict_case(record));
  const auto count = [&tests](Outcome outcome) {
    return std::count_if(tests.begin(), tests.end(),
                         [outcome](const TestCase& test) { return test.outcome == outcome; });
  };
  const double seconds = std::isfinite(record.wall_seconds) ? record.wall_seconds : 0;
  const std::string totals =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", tests.size(),
                  count(Outcome::failed), count(Outcome::errored), seconds);
  // The common schema of JUnit files wants a local time without a zone.
  const std::string started = record.started.substr(0, record.started.find('Z'));
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"attest\" {}>\n"
      "  <testsuite name=\"attest {}\" timestamp=\"{}\" skipped=\"{}\" {}>\n"
      "    <properties>\n",
      totals, xml_escape(subject), xml_escape(started), count(Outcome::skipped), totals);
  text += property("tool", "attest " + record.tool_version);
  text += property("command", record.command);
  text += property("suite", record.suite);
  text += property("seed", std::to_string(record.seed));
  text += property("shard", record.shard);
  text += property("declaration", record.subject.declaration);
  text += property("precision", record.subject.precision);
  text += property("verdict", name(record.verdict));
  text += "    </properties>\n";
  // Readers take dots in a class name for levels.
  std::string class_name = plain(record.subject.name);
  std::replace(class_name.begin(), class_name.end(), '.', '_');
  for (const TestCase& test : tests) text += test_text(test, "attest." + class_name);
  return text + "  </testsuite>\n</testsuites>\n";
}

ATTEST_REPORT_FORMAT(junit, {.name = "junit",
                             .extension = "xml",
                             .purpose = "one test for each requirement and dtype, for CI servers",
                             .write = write});

}  // namespace
}  // namespace attest
