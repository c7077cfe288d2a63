// SPDX-License-Identifier: Apache-2.0
// Verdict rules of other harnesses on kernels of which it is known whether they are right. Made by
// `attest rules`; plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attest {

/// Plain data is what other harnesses draw; the rest of Attest's data is there to find mistakes.
inline constexpr const char* kGaussianData = "gaussian";
inline constexpr const char* kAllData = "all";

/// One rule on the kernels of one dtype, with one kind of data.
struct RuleScore {
  std::string rule, data, dtype;
  std::int64_t honest = 0, accused = 0;  ///< kernels; accused: on at least one problem
  std::int64_t faulty = 0, missed = 0;   ///< missed: on no problem
  std::int64_t told_apart = 0;           ///< faults accused whose honest base is not
  std::vector<std::string> accused_kernels, missed_kernels;
  bool operator==(const RuleScore&) const = default;
};

struct RuleComparison {
  std::string tool_version, commit, command, library;
  std::uint64_t seed = 0;
  std::int64_t problems = 0;              ///< for each kernel
  std::vector<std::string> rules, texts;  ///< names, and what each asks
  std::vector<RuleScore> scores;          ///< by rule, data and dtype
  std::string started;
  double wall_seconds = 0;
  bool operator==(const RuleComparison&) const = default;
};

}  // namespace attest
