// SPDX-License-Identifier: Apache-2.0
#include "reports/detection_kinds.hpp"

#include <algorithm>

namespace attest {

namespace {

bool is_by(const Detection& kernel, const std::string& requirement) {
  return std::any_of(kernel.catches.begin(), kernel.catches.end(),
                     [&](const Catch& one) { return one.requirement == requirement; });
}

}  // namespace

bool FaultRow::caught() const {
  return std::all_of(kernels.begin(), kernels.end(),
                     [](const Detection* kernel) { return kernel->outcome == Outcome::caught; });
}

std::size_t FaultRow::caught_by(const std::string& requirement) const {
  return static_cast<std::size_t>(
      std::count_if(kernels.begin(), kernels.end(),
                    [&](const Detection* kernel) { return is_by(*kernel, requirement); }));
}

double FaultRow::slowest_seconds() const {
  double slowest = 0;
  for (const Detection* kernel : kernels)
    if (!kernel->catches.empty()) slowest = std::max(slowest, kernel->catches.front().seconds);
  return slowest;
}

const MinimalCase* FaultRow::minimal() const {
  for (const Detection* kernel : kernels)
    if (!kernel->minimal.empty()) return &kernel->minimal.front();
  return nullptr;
}

std::string FaultRow::dtypes() const {
  std::string text;
  for (const Detection* kernel : kernels) text += (text.empty() ? "" : " ") + kernel->dtype;
  return text;
}

std::vector<FaultRow> fault_rows(const DetectionReport& report) {
  std::vector<FaultRow> rows;
  for (const Detection& kernel : report.kernels) {
    if (kernel.honest || kernel.outcome == Outcome::out_of_scope) continue;
    if (rows.empty() || rows.back().id != kernel.id) rows.push_back({kernel.id, kernel.kind, {}});
    rows.back().kernels.push_back(&kernel);
  }
  return rows;
}

std::vector<KindRow> kind_rows(const std::vector<FaultRow>& faults) {
  std::vector<KindRow> rows;
  for (const FaultRow& fault : faults) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const KindRow& known) { return known.kind == fault.kind; });
    if (row == rows.end()) row = rows.insert(rows.end(), {fault.kind, 0, 0});
    ++row->faults;
    row->caught += fault.caught();
  }
  return rows;
}

}  // namespace attest
