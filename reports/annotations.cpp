// SPDX-License-Identifier: Apache-2.0
// The record as annotations of a GitHub workflow: lines that a step prints, one for each cause.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "reports/format.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

// A step shows ten errors and ten warnings; the tenth says how many more there are.
constexpr std::size_t kMost = 9;

std::string escape(std::string_view text, bool property) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '%': escaped += "%25"; break;
      case '\r': escaped += "%0D"; break;
      case '\n': escaped += "%0A"; break;
      case ':': escaped += property ? "%3A" : ":"; break;
      case ',': escaped += property ? "%2C" : ","; break;
      default: escaped += c;
    }
  }
  return escaped;
}

struct Annotation {
  bool error = true;  ///< else a warning
  std::string title, message;
};

Annotation of_cause(const Record& record, const CauseView& view) {
  const Failure& failure = *view.smallest;
  std::string message = cause_sentence(view) + '\n';
  const std::string worst = worst_sentence(failure), where = where_sentence(failure);
  for (const std::string& line :
       {worst.empty() ? plain(failure.detail) : worst, where,
        view.cause->diagnosis.empty() ? "" : "looks like: " + plain(view.cause->diagnosis),
        fmt::format("{}; {}", cause_extent(*view.cause), reruns_sentence(failure))})
    if (!line.empty()) message += line + '\n';
  return {is_failure(view.cause->verdict) && !view.known(),
          fmt::format("attest: {} {}", plain(record.subject.name), plain(failure.requirement)),
          message + plain(failure.replay)};
}

/// What turns the build red without being a cause: a run without a verdict, a stale expectation.
std::vector<Annotation> of_run(const Record& record) {
  std::vector<Annotation> annotations;
  const std::string title = "attest: " + plain(record.subject.name);
  if (record.verdict == SuiteVerdict::incomplete ||
      record.verdict == SuiteVerdict::too_little_tested)
    annotations.push_back(
        {true, title,
         fmt::format("{}: {}", verdict_word(record.verdict), verdict_sentence(record))});
  for (const std::string& line : broken_promises(record))
    annotations.push_back({true, title, line});
  return annotations;
}

std::string write(const Record& record) {
  std::vector<Annotation> annotations = of_run(record);
  for (const CauseView& view : causes_by_urgency(record))
    annotations.push_back(of_cause(record, view));
  std::string text;
  for (const bool error : {true, false}) {
    const char* kind = error ? "error" : "warning";
    std::size_t count = 0;
    for (const Annotation& annotation : annotations)
      if (annotation.error == error && ++count <= kMost)
        text += fmt::format("::{} title={}::{}\n", kind, escape(annotation.title, true),
                            escape(annotation.message, false));
    if (count > kMost)
      text += fmt::format("::{} title=attest::{} more; the JSON report has them all\n", kind,
                          count - kMost);
  }
  return text;
}

ATTEST_REPORT_FORMAT(annotations, {.name = "annotations",
                                   .extension = "annotations",
                                   .purpose = "lines for the log of a GitHub workflow, which shows "
                                              "them beside the change",
                                   .write = write});

}  // namespace
}  // namespace attest
