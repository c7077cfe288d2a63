// SPDX-License-Identifier: Apache-2.0
// The suite as a library: run the requirements on a kernel that is linked into this very program.
// attest/gtest.hpp builds on it; it serves any other test framework as well. Link with
// attest::grade.
//
// Calls run in this process: a kernel that crashes takes the test binary with it. For verdicts on
// crashes, hangs and memory use the command `attest check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/plugin.h"

namespace attest {

struct ConformanceCase {
  std::string requirement;  ///< "ORACLE-O"
  std::string dtype;        ///< "bf16"
};

struct ConformanceOptions {
  std::uint64_t seed = 1;
  int problems = 50;  ///< drawn per case
};

struct ConformanceResult {
  bool passed = true;
  std::int64_t checked = 0;  ///< problems that were judged
  std::string message;       ///< of a failure: requirement, what is wrong, case line
};

/// Every requirement that applies to the kernel's declaration, for each of its dtypes. Throws
/// std::invalid_argument where the plug-in or its declaration cannot be used.
ATTEST_EXPORT std::vector<ConformanceCase> conformance_cases(const attest_plugin* plugin);

ATTEST_EXPORT ConformanceResult run_conformance_case(const attest_plugin* plugin,
                                                     const ConformanceCase& which,
                                                     const ConformanceOptions& options = {});

}  // namespace attest
