// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "harness/subject.hpp"

namespace attest {

namespace {

namespace fs = std::filesystem;

bool has(const fs::path& folder, const char* name) {
  return access((folder / name).c_str(), F_OK) == 0;
}

/// The folder with attest-host nearest to the running program: beside it in a build tree, under the
/// prefix where it is installed, a few folders up for test programs. Where no host is found, one
/// with modules: that the host is missing is then said when it should start.
std::string find_module_dir() {
  if (const char* given = std::getenv("ATTEST_MODULE_DIR")) return given;
  constexpr int kLevels = 4;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path folder = program.parent_path();
  std::string hostless;
  for (int level = 0; level < kLevels && !folder.empty(); ++level) {
    for (const char* below : {"lib/attest", ATTEST_LIBDIR "/attest"}) {
      if (has(folder / below, "attest-host")) return (folder / below).string();
      if (hostless.empty() && has(folder / below, "naive.so")) hostless = (folder / below).string();
    }
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return hostless.empty() ? ATTEST_FULL_LIBDIR "/attest" : hostless;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

std::string module_dir() {
  static const std::string folder = find_module_dir();
  return folder;
}

std::vector<std::string> built_in_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(module_dir(), error))
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<SubjectSpec> resolve_subject(const std::string& text) {
  if (text.empty()) return Error{"no kernel given"};
  SubjectSpec spec{text, "", false};
  // A '#' in a file's own name is no kernel's name.
  const std::size_t hash = text.rfind('#');
  if (hash != std::string::npos && !is_file(text)) {
    spec.path = text.substr(0, hash);
    spec.kernel = text.substr(hash + 1);
    if (spec.kernel.empty()) return Error{fmt::format("{}: no kernel's name after '#'", text)};
  }
  if (spec.path.find('/') == std::string::npos) {
    const std::vector<std::string> names = built_in_names();
    if (std::find(names.begin(), names.end(), spec.path) != names.end()) {
      spec.path = module_dir() + "/" + spec.path + ".so";
      spec.built_in = true;
      return spec;
    }
    if (!fs::exists(spec.path))
      return Error{fmt::format("{}: no such file, and no built-in implementation (there are: {})",
                               spec.path, joined(names))};
  }
  std::error_code error;
  // With a slash in it: dlopen() looks for a bare name in the system's folders.
  const fs::path full = fs::canonical(spec.path, error);
  if (error) return Error{fmt::format("{}: {}", spec.path, error.message())};
  if (fs::is_directory(full, error))
    return Error{fmt::format("{}: is a folder, not a shared library", spec.path)};
  // Opening a pipe waits for ever.
  if (!fs::is_regular_file(full, error))
    return Error{fmt::format("{}: is no regular file", spec.path)};
  spec.path = full.string();
  return spec;
}

}  // namespace attest
