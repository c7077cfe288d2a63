// SPDX-License-Identifier: Apache-2.0
// The error terms of one row, key by key: Delta, vz, eps and D of docs/tolerance.md sections 3.1 to
// 3.4, and their sums.
#pragma once

#include "reference/profile.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// Fills `terms` (all but lone_noise and lone_eps, which find_groups() derives) and returns the
/// sums of the row (all but kappa and the grouped ones).
RowSums row_terms(const Arithmetic& arithmetic, const RowScores& row, RowTerms& terms);

/// R: how often the running maximum moves when blocks of 16 keys are taken in ascending or in
/// descending order, whichever is more.
double max_updates(const RowScores& row);

}  // namespace attest
