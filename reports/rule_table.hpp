// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "attest/rule_comparison.hpp"

namespace attest {

/// The table: rules down; across, honest kernels accused and faults missed for each kind of data.
std::string rule_table(const RuleComparison& comparison);
/// A page with the table, what each rule asks, and the kernels that it gets wrong.
std::string rule_markdown(const RuleComparison& comparison);

}  // namespace attest
