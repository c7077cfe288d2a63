// SPDX-License-Identifier: Apache-2.0
#include "impls/faulty/catalogue.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace attest::faulty {
namespace {

// Kernels are registered by static objects of many files, so whatever holds them is made on first
// use. Deques, since the tables point at each other and at their texts.
struct Library {
  std::deque<std::string> texts;
  std::deque<attest_plugin> kernels;
  std::vector<attest_plugin*> by_name;
  std::deque<attest_fault> faults;
  std::vector<attest_fault*> by_id;
};

Library& library() {
  static Library the_library;
  return the_library;
}

const char* keep(std::string text) { return library().texts.emplace_back(std::move(text)).c_str(); }

/// Into a list that is sorted by a text of its entries, and into the chain through `next`.
template <class Entry, class Text>
void insert(std::vector<Entry*>& sorted, Entry* entry, Text text) {
  const auto at = std::lower_bound(
      sorted.begin(), sorted.end(), entry,
      [&](const Entry* a, const Entry* b) { return std::strcmp(a->*text, b->*text) < 0; });
  entry->next = at == sorted.end() ? nullptr : *at;
  if (at != sorted.begin()) (*(at - 1))->next = entry;
  sorted.insert(at, entry);
}

void add(const std::string& kernel, const Plant& plant, const std::string& types,
         attest_plugin table) {
  table.name = keep(kernel);
  table.declaration = keep("dtype=" + types + " " + plant.declares);
  Library& all = library();
  insert(all.by_name, &all.kernels.emplace_back(table), &attest_plugin::name);
  detail::first_plugin = all.by_name.front();
}

}  // namespace

bool lists(std::string_view types, DType type) {
  for (std::size_t at = 0; at <= types.size();) {
    const std::size_t end = std::min(types.find(',', at), types.size());
    if (types.substr(at, end - at) == name(type)) return true;
    at = end + 1;
  }
  return false;
}

void add_kernel(const Plant& plant, DType type, attest_plugin table) {
  const std::string type_name(name(type));
  if (lists(plant.dtypes, type)) add(plant.id + ("." + type_name), plant, type_name, table);
}

void add_kernel(const Plant& plant, attest_plugin table) {
  add(plant.id, plant, plant.dtypes, table);
}

void add_to_catalogue(const Plant& plant) {
  attest_fault fault{};
  fault.struct_size = sizeof fault;
  fault.honest = plant.honest ? 1 : 0;
  fault.id = plant.id;
  fault.kind = plant.kind;
  fault.sentence = plant.sentence;
  fault.reference = plant.reference;
  fault.dtypes = plant.dtypes;
  fault.base = plant.base;
  Library& all = library();
  insert(all.by_id, &all.faults.emplace_back(fault), &attest_fault::id);
}

}  // namespace attest::faulty

const attest_fault* attest_fault_catalogue(void) {
  const auto& faults = attest::faulty::library().by_id;
  return faults.empty() ? nullptr : faults.front();
}
