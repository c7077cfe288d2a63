// SPDX-License-Identifier: Apache-2.0
#include "tools/fault_library.hpp"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "tools/command.hpp"

namespace attest {

namespace {

/// Where planted faults lie: beside the folder of the built-in modules.
std::string faulty_library() {
  return (std::filesystem::path(module_dir()).parent_path() / "attest-faulty" / "faulty.so")
      .lexically_normal()
      .string();
}

}  // namespace

Catalogue read_catalogue(const Arguments& arguments) {
  std::string path = arguments.positional("LIBRARY");
  if (path.empty()) {
    path = faulty_library();
    if (::access(path.c_str(), F_OK) != 0)
      throw CommandError(path +
                         ": no such file; the library of planted faults is part of a build "
                         "tree of attest, not of an installation");
  }
  std::error_code error;
  const std::filesystem::path full = std::filesystem::canonical(path, error);
  if (error) throw CommandError(path + ": " + error.message());
  Result<Catalogue> catalogue = load_catalogue(full.string());
  if (!catalogue) throw CommandError(catalogue.error());
  return *catalogue;
}

std::vector<HonestKernel> built_in_kernels() {
  std::vector<HonestKernel> kernels;
  for (const std::string& id : built_in_names())
    if (const Result<SubjectSpec> spec = resolve_subject(id)) kernels.push_back({id, id, *spec});
  return kernels;
}

}  // namespace attest
