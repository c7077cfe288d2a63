// SPDX-License-Identifier: Apache-2.0
// The record as a code-quality report of GitLab: one entry for each cause.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "reports/format.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

/// What tells two causes apart, and one run's from the next's: not the case, which may shrink
/// otherwise.
std::string fingerprint(const Record& record, const CauseView& view) {
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n", record.subject.name, view.smallest->requirement,
                  name(view.cause->verdict), name(view.cause->reason), view.cause->sentence);
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

const char* severity(const CauseView& view) {
  if (!is_failure(view.cause->verdict)) return "minor";
  return view.known() ? "info" : "critical";
}

/// The path of the library as the project has it: GitLab links it.
std::string location(const Record& record) {
  std::string path = plain(record.subject.path.empty() ? record.subject.name : record.subject.path);
  while (path.rfind("./", 0) == 0) path.erase(0, 2);
  return path;
}

std::string write(const Record& record) {
  Json list = Json::array();
  for (const CauseView& view : causes_by_urgency(record)) {
    const Failure& failure = *view.smallest;
    Json entry;
    entry["description"] = fmt::format("{} ({}); {}", cause_sentence(view),
                                       cause_extent(*view.cause), plain(failure.replay));
    entry["check_name"] = plain(failure.requirement);
    entry["fingerprint"] = fingerprint(record, view);
    entry["severity"] = severity(view);
    entry["location"] = {{"path", location(record)}, {"lines", {{"begin", 1}}}};
    list.push_back(std::move(entry));
  }
  return list.dump(2) + '\n';
}

ATTEST_REPORT_FORMAT(code_quality, {.name = "code-quality",
                                    .extension = "code-quality.json",
                                    .purpose = "a code-quality report of GitLab",
                                    .write = write});

}  // namespace
}  // namespace attest
