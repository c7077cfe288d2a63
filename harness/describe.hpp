// SPDX-License-Identifier: Apache-2.0
// A failing case in words and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

/// Which of the indices of an axis are in `indices` (ascending): "0-2, 5 of 8".
std::string index_ranges(const std::vector<std::int64_t>& indices, std::int64_t extent);

/// Where the failed elements lie: "query rows 0-2 of 3, channel 1 of 4"; "every element".
std::string failure_pattern(const AttentionProblem& problem, const CaseResult& result);

/// failure_pattern(), and every element of the failing output where it has at most 12, expected
/// beside actual; else the worst one.
void describe(const CaseResult& result, const AttentionProblem& problem, CaseContext& context,
              std::string& pattern, std::vector<std::string>& numbers);

}  // namespace attest
