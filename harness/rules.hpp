// SPDX-License-Identifier: Apache-2.0
// Verdict rules of other harnesses beside the derived tolerance, on the same calls.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>
#include <vector>

#include "attest/rule_comparison.hpp"
#include "harness/selftest.hpp"

namespace attest {

/// The elements of one output that have one right answer.
struct RuleInput {
  DType dtype = DType::f32;
  double softcap = 0;
  std::vector<double> expected, actual;
  std::vector<double> baseline;  ///< low_precision_output(); empty for lse
};

struct Rule {
  std::string_view name;
  std::string_view text;
  bool (*accuses)(const RuleInput&) = nullptr;  ///< nullptr: the derived tolerance, judge_values()
};
const std::vector<Rule>& rules();

struct RuleOptions {
  Catalogue catalogue;
  std::vector<HonestKernel> more_honest;
  std::string filter;
  std::uint64_t seed = 1;
  std::int64_t problems = 300;
  int jobs = 1;
  const std::atomic<bool>* interrupted = nullptr;
};

/// Every kernel of the catalogue, and the other honest ones in each of their dtypes, on the same
/// shared problems. Calls that end in an accident or a refusal are passed by: they need no rule.
Result<std::vector<RuleScore>> compare_rules(const RuleOptions& options, RunError& error);

}  // namespace attest
