// SPDX-License-Identifier: Apache-2.0
#include "tools/last_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "reports/atomic_file.hpp"
#include "reports/format.hpp"
#include "reports/reader.hpp"
#include "tools/arguments.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

/// FNV-1a: the same for every build, unlike std::hash.
std::uint32_t hash_of(const std::string& text) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

/// One file for each library and kernel in it; "" without a folder.
std::string last_run_path(const std::string& library, const std::string& kernel) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::error_code error;
  const std::string where = std::filesystem::weakly_canonical(library, error).string();
  return fmt::format("{}/last-{}-{:08x}.json", folder,
                     std::filesystem::path(library).stem().string(),
                     hash_of((error ? library : where) + "\n" + kernel));
}

}  // namespace

void keep_last_run(const Record& record) {
  // A run that stopped early takes nothing from what the one before it found.
  if (record.verdict == SuiteVerdict::incomplete) return;
  const std::string path = last_run_path(record.subject.path, record.subject.name);
  if (!path.empty()) write_file(path, find_report_format("json")->write(record));
}

void only_last_failed(RunOptions& options) {
  const std::string kernel = open_subject(options.subject)->kernel_name();
  const std::string path = last_run_path(options.subject.path, kernel);
  if (path.empty())
    throw CommandError("--last-failed: no folder keeps the last run (HOME is not set)");
  if (::access(path.c_str(), F_OK) != 0)
    throw CommandError(fmt::format("--last-failed: '{}' has not been checked here yet", kernel));
  const Result<Record> record = read_record_file(path);
  if (!record) throw CommandError("--last-failed: " + record.error());
  options.last_failed = true;
  options.cases_name = "last-failed";
  std::set<std::string> seen;
  for (const Failure& failure : record->failures)
    for (const std::string& line : {failure.case_line, failure.found_case_line}) {
      if (!is_failure(failure.verdict) || !seen.insert(failure.requirement + " " + line).second)
        continue;
      options.case_lines.push_back(line);
      options.case_requirements.push_back(failure.requirement);
    }
  if (options.case_lines.empty())
    throw CommandError(fmt::format("--last-failed: nothing failed in the last run of '{}', of {}",
                                   kernel, record->started));
}

}  // namespace attest
