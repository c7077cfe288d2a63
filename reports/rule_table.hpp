// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "attest/rule_comparison.hpp"

namespace attest {

/// The table, rules down and dtypes across: "2 / 0" is 2 honest kernels accused, 0 faults missed.
std::string rule_table(const RuleComparison& comparison);
/// A page with the table, what each rule asks, and the kernels that it gets wrong.
std::string rule_markdown(const RuleComparison& comparison);

}  // namespace attest
