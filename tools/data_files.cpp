// SPDX-License-Identifier: Apache-2.0
#include "tools/data_files.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "harness/subject.hpp"
#include "reports/text.hpp"
#include "tools/arguments.hpp"

namespace attest {

namespace {

/// Beside the modules, wherever the command was found: <prefix>/lib/attest and
/// <prefix>/share/attest.
std::filesystem::path folder_of(const std::string& kind) {
  return std::filesystem::path(module_dir()) / "../../share/attest" / kind;
}

}  // namespace

std::vector<std::string> data_names(const std::string& kind) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(kind), error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string data_path(const std::string& kind, const std::string& name) {
  const bool is_path = name.find('/') != std::string::npos ||
                       (name.size() > 5 && name.compare(name.size() - 5, 5, ".json") == 0);
  if (is_path) return name;
  const std::vector<std::string> names = data_names(kind);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw CommandError("no " + kind.substr(0, kind.size() - 1) + " '" + plain(name) + "'" +
                       suggestion(name, names) + "; there are " + join(names, ", ") +
                       ", or a file's path");
  return (folder_of(kind) / (name + ".json")).string();
}

}  // namespace attest
