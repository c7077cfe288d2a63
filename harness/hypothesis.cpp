// SPDX-License-Identifier: Apache-2.0
#include "harness/hypothesis.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace attest {

namespace {

std::vector<Hypothesis>& registry() {
  static std::vector<Hypothesis> all;
  return all;
}

}  // namespace

bool register_hypothesis(Hypothesis hypothesis) {
  auto& all = registry();
  const auto before = [](const Hypothesis& left, const Hypothesis& right) {
    return std::tie(left.rank, left.id) < std::tie(right.rank, right.id);
  };
  all.insert(std::lower_bound(all.begin(), all.end(), hypothesis, before), std::move(hypothesis));
  return true;
}

const std::vector<Hypothesis>& hypotheses() { return registry(); }

std::string family_of(const std::string& id) { return id.substr(0, id.find('/')); }

}  // namespace attest
