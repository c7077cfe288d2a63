// SPDX-License-Identifier: Apache-2.0
#include "attest/detection.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace attest {

namespace {

constexpr std::string_view kOutcomes[] = {"caught",       "escaped",  "unreachable",
                                          "out_of_scope", "accepted", "accused"};

/// The middle one, or the mean of the two in the middle; 0 of none.
template <class T>
double median(std::vector<T> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return static_cast<double>(values[middle]);
  return (static_cast<double>(values[middle - 1]) + static_cast<double>(values[middle])) / 2;
}

/// What is known of one fault over its dtypes.
struct Fault {
  bool all_caught = true, beyond_oracle = false;
};

}  // namespace

std::string_view name(Outcome outcome) { return kOutcomes[static_cast<std::size_t>(outcome)]; }

std::optional<Outcome> parse_outcome(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kOutcomes); ++i)
    if (kOutcomes[i] == text) return static_cast<Outcome>(i);
  return std::nullopt;
}

bool compares_with_oracle(std::string_view requirement) {
  constexpr std::string_view kOthers[] = {
      "CACHE-GRID", "CACHE-LSE",    "CACHE-NEEDLE", "CACHE-O",   "CACHE-ORDER", "CACHE-SIZES",
      "GRAD-BIAS",  "GRAD-K",       "GRAD-Q",       "GRAD-SINK", "GRAD-SLOPES", "GRAD-V",
      "INV-ORDER",  "LIMIT-STRIDE", "LONG-NEEDLE",  "ROPE-GRID", "ROPE-ORACLE", "SIZE-GRID"};
  return requirement.starts_with("ORACLE-") ||
         std::find(std::begin(kOthers), std::end(kOthers), requirement) != std::end(kOthers);
}

DetectionTotals detection_totals(const DetectionReport& report) {
  DetectionTotals totals;
  std::map<std::string, Fault> faults;
  std::set<std::string> honest, accused;
  std::vector<double> seconds;
  std::vector<std::int64_t> pairs;
  for (const Detection& kernel : report.kernels) {
    if (kernel.honest) {
      honest.insert(kernel.id);
      ++totals.honest_kernels;
      totals.honest_kernels_accused += kernel.outcome == Outcome::accused;
      if (kernel.outcome == Outcome::accused) accused.insert(kernel.id);
      continue;
    }
    if (!kernel.accusations.empty()) accused.insert(kernel.base);
    totals.out_of_scope_kernels += kernel.outcome == Outcome::out_of_scope;
    if (kernel.outcome == Outcome::out_of_scope) continue;
    Fault& fault = faults[kernel.id];
    ++totals.fault_kernels;
    totals.escaped_kernels += kernel.outcome == Outcome::escaped;
    totals.unreachable_kernels += kernel.outcome == Outcome::unreachable;
    fault.all_caught &= kernel.outcome == Outcome::caught;
    for (const MinimalCase& minimal : kernel.minimal) {
      pairs.push_back(minimal.pairs);
      totals.minimal_failing_again += minimal.fails_again;
    }
    if (kernel.outcome != Outcome::caught) continue;
    ++totals.fault_kernels_caught;
    seconds.push_back(kernel.catches.front().seconds);
    for (const Catch& one : kernel.catches)
      fault.beyond_oracle |= !compares_with_oracle(one.requirement);
  }
  for (const auto& [id, fault] : faults) {
    ++totals.faults;
    totals.caught += fault.all_caught;
    totals.caught_beyond_oracle += fault.all_caught && fault.beyond_oracle;
  }
  // A base that only the test of a fault accused, where a filter left it out.
  honest.insert(accused.begin(), accused.end());
  totals.honest = static_cast<std::int64_t>(honest.size());
  totals.accused = static_cast<std::int64_t>(accused.size());
  totals.minimal_cases = static_cast<std::int64_t>(pairs.size());
  totals.median_pairs = median(pairs);
  totals.median_seconds = median(seconds);
  for (const double value : seconds)
    totals.slowest_seconds = std::max(totals.slowest_seconds, value);
  return totals;
}

std::string detection_score(const DetectionReport& report) {
  const DetectionTotals totals = detection_totals(report);
  return "caught " + std::to_string(totals.caught) + " of " + std::to_string(totals.faults) +
         (report.within.empty() ? " faults" : " planted bugs in that scope") + ", accused " +
         std::to_string(totals.accused) + " of " + std::to_string(totals.honest) +
         " honest kernels";
}

}  // namespace attest
