// SPDX-License-Identifier: Apache-2.0
// The faults of a detection report, by id and by kind.
#pragma once

#include <string>
#include <vector>

#include "attest/detection.hpp"

namespace attest {

/// The kernels of one fault that are in scope, as the catalogue has them.
struct FaultRow {
  std::string id, kind;
  std::vector<const Detection*> kernels;
  bool caught() const;
  /// In how many of its dtypes a requirement caught it.
  std::size_t caught_by(const std::string& requirement) const;
  double slowest_seconds() const;      ///< to the first catch
  const MinimalCase* minimal() const;  ///< nullptr: none
  std::string dtypes() const;          ///< "f32 bf16"
};
std::vector<FaultRow> fault_rows(const DetectionReport& report);

struct KindRow {
  std::string kind;
  std::int64_t faults = 0, caught = 0;
};
/// In the order in which the catalogue has them.
std::vector<KindRow> kind_rows(const std::vector<FaultRow>& faults);

}  // namespace attest
