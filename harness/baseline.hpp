// SPDX-License-Identifier: Apache-2.0
// A run held against the record of an earlier one: which causes are new.
#pragma once

#include <string>

#include "attest/record.hpp"

namespace attest {

/// Sets Cause::known and fills record.baseline. A cause of failures is known where one of its
/// failures stands in the baseline: the same verdict and reason on the same minimal case, or by the
/// same requirement in a cause of the same sentence or the same features. (No features at all are
/// no likeness: half of all mistakes have none.)
///
/// `comparable`: this run looked at all that the baseline looked at, so that what it does not show
/// is gone.
void hold_against(const Record& baseline, const std::string& path, bool comparable, Record& record);

/// A known failure: expected, or of a known cause.
bool is_known(const Record& record, const Failure& failure);

}  // namespace attest
