// SPDX-License-Identifier: Apache-2.0
// Several records side by side: one row for each subject.
#pragma once

#include <string>
#include <vector>

#include "attest/record.hpp"

namespace attest {

enum class TableStyle { terminal, markdown };

/// Columns: subject, verdict, cases, failing, refused, dtypes, largest err/T of all outputs, suite,
/// seconds. Rows in the order given; the text ends in a newline.
std::string verdict_table(const std::vector<Record>& records,
                          TableStyle style = TableStyle::terminal);

}  // namespace attest
