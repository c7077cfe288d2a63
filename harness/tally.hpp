// SPDX-License-Identifier: Apache-2.0
// From the results of the list to the numbers of the record.
#pragma once

#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/expectations.hpp"
#include "harness/findings.hpp"
#include "harness/suite.hpp"
#include "harness/unit.hpp"

namespace attest {

/// Counts by requirement and dtype, matrix, ratios, audit and scope (without what cut the list).
/// `all` are the requirements that the filter left, also those that the declaration skips.
void tally(const WorkList& work, const std::vector<const Requirement*>& all,
           const std::vector<UnitResult>& results, Record& record);

/// A case that failed once and never again is counted as a warning.
void count_flaky_as_warnings(const WorkList& work, const std::vector<UnitResult>& results,
                             const std::vector<Finding>& findings, Record& record);

/// Marks the failures that the expectations cover and says what became of each expectation.
/// `today` is an ISO date: an entry that is past its date covers nothing. `whole`: the whole list
/// of a suite ran, so that an entry whose failures did not show is stale.
void apply_expectations(const std::vector<Expectation>& expectations, const std::string& today,
                        bool whole, Record& record);

/// A kernel that refuses more of what it declares is too little tested.
inline constexpr double kMostRefused = 0.5;

/// The verdict of a run that was neither cut nor interrupted. `planned` cases at most were to come.
SuiteVerdict suite_verdict(const Record& record, std::int64_t planned);

/// Appends "bf16=mma_f32acc", after a blank where there is something before it.
void add_precision(const Declaration& declaration, DType dtype, std::string& text);

/// "1-8, 16, 64": ascending numbers.
std::vector<std::string> ranges(const std::vector<std::int64_t>& sorted);

}  // namespace attest
