// SPDX-License-Identifier: Apache-2.0
#include "harness/catalogue.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "attest/faults.h"

namespace attest {

namespace {

constexpr std::size_t kMostEntries = 10000;  // a chain of `next` longer than this is a ring
constexpr std::size_t kMostKernels = 5 * kMostEntries;  // of an entry: four types, and all

std::string text_of(const char* text) { return text ? text : ""; }

bool is_id(const std::string& id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// "f32,bf16"; empty where a word is no dtype, or stands twice.
std::vector<DType> read_dtypes(std::string_view text) {
  std::vector<DType> dtypes;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto dtype = parse_dtype(text.substr(0, comma));
    if (!dtype || std::count(dtypes.begin(), dtypes.end(), *dtype) > 0) return {};
    dtypes.push_back(*dtype);
    if (comma == std::string_view::npos) return dtypes;
    text.remove_prefix(comma + 1);
  }
}

std::string read_entry(const attest_fault& fault, CatalogueEntry& entry) {
  entry = {text_of(fault.id),        text_of(fault.kind), text_of(fault.sentence),
           text_of(fault.reference), text_of(fault.base), read_dtypes(text_of(fault.dtypes)),
           fault.honest != 0};
  if (!is_id(entry.id)) return fmt::format("'{}' is no id", entry.id);
  if (entry.dtypes.empty())
    return fmt::format("{}: '{}' is no list of dtypes", entry.id, text_of(fault.dtypes));
  if (entry.kind.empty() || entry.sentence.empty())
    return fmt::format("{}: kind and sentence must be there", entry.id);
  return "";
}

std::string base_error(const std::map<std::string, const CatalogueEntry*>& known,
                       const CatalogueEntry& fault) {
  const auto base = known.find(fault.base);
  if (base == known.end() || !base->second->honest)
    return fmt::format("{}: its base '{}' is no honest entry", fault.id, fault.base);
  const std::vector<DType>& served = base->second->dtypes;
  for (const DType dtype : fault.dtypes)
    if (std::find(served.begin(), served.end(), dtype) == served.end())
      return fmt::format("{}: its base {} has no {}", fault.id, fault.base, name(dtype));
  return "";
}

/// "" or what is wrong.
std::string read_entries(const attest_fault* fault, std::vector<CatalogueEntry>& entries) {
  for (; fault; fault = fault->next) {
    if (entries.size() == kMostEntries) return "its list of faults does not end";
    if (fault->struct_size < sizeof(attest_fault))
      return fmt::format("an entry has struct_size {}, less than {}", fault->struct_size,
                         sizeof(attest_fault));
    if (std::string error = read_entry(*fault, entries.emplace_back()); !error.empty())
      return error;
  }
  if (entries.empty()) return "its list of faults is empty";
  std::map<std::string, const CatalogueEntry*> known;
  for (const CatalogueEntry& entry : entries)
    if (!known.emplace(entry.id, &entry).second) return fmt::format("{} stands twice", entry.id);
  for (const CatalogueEntry& entry : entries)
    if (std::string error = entry.honest ? "" : base_error(known, entry); !error.empty())
      return error;
  return "";
}

std::set<std::string> kernel_names(void* library) {
  std::set<std::string> names;
  void* symbol = dlsym(library, "attest_plugin_entry");
  if (!symbol) return names;
  attest_plugin_entry_function entry = nullptr;
  std::memcpy(&entry, &symbol, sizeof symbol);
  const attest_plugin* one = entry(ATTEST_ABI_VERSION);
  for (std::size_t n = 0; one && n < kMostKernels; ++n, one = one->next)
    names.insert(text_of(one->name));
  return names;
}

}  // namespace

Result<Catalogue> load_catalogue(const std::string& path) {
  const auto fail = [&](const std::string& what) {
    return Error{fmt::format("{}: {}", path, what)};
  };
  const std::unique_ptr<void, int (*)(void*)> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                      &dlclose);
  if (!library) {
    // dlerror() begins with the path itself.
    const std::string_view why = dlerror();
    const bool named = why.substr(0, path.size() + 2) == path + ": ";
    return fail("cannot be loaded: " + std::string(named ? why.substr(path.size() + 2) : why));
  }
  void* symbol = dlsym(library.get(), "attest_fault_catalogue");
  if (!symbol) return fail("is no library of faults: it does not export attest_fault_catalogue");
  attest_fault_catalogue_function catalogue_of = nullptr;
  std::memcpy(&catalogue_of, &symbol, sizeof symbol);
  Catalogue catalogue{path, {}};
  if (const std::string error = read_entries(catalogue_of(), catalogue.entries); !error.empty())
    return fail(error);
  const std::set<std::string> kernels = kernel_names(library.get());
  for (CatalogueEntry& entry : catalogue.entries)
    entry.whole = entry.honest && kernels.contains(entry.id);
  return catalogue;
}

std::string kernel_of(const std::string& id, DType dtype) {
  return id + "." + std::string(name(dtype));
}
std::string kernel_of(const CatalogueEntry& entry, DType dtype) {
  return kernel_of(entry.id, dtype);
}

}  // namespace attest
