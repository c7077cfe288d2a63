// SPDX-License-Identifier: Apache-2.0
// GoogleTest adapter: one parameterised test per requirement and dtype, in the user's own binary.
//
//   #include <attest/gtest.hpp>
//   ATTEST_CONFORMANCE(MyKernel, attest_plugin_entry(ATTEST_ABI_VERSION));
//
// Link with attest::grade and GTest.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "attest/conformance.hpp"

namespace attest {

struct ConformanceParam {
  const attest_plugin* plugin;
  ConformanceCase which;
};

inline std::vector<ConformanceParam> conformance_params(const attest_plugin* plugin) {
  std::vector<ConformanceParam> params;
  for (ConformanceCase& which : conformance_cases(plugin)) params.push_back({plugin, which});
  return params;
}

/// GoogleTest wants letters, digits and '_' in names.
inline std::string conformance_name(const testing::TestParamInfo<ConformanceParam>& info) {
  std::string name = info.param.which.requirement + "_" + info.param.which.dtype;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

inline void PrintTo(const ConformanceParam& param, std::ostream* out) {
  *out << param.which.requirement << " " << param.which.dtype;
}

class Conformance : public testing::TestWithParam<ConformanceParam> {};

#define ATTEST_CONFORMANCE(Name, table)                                                          \
  class Name : public ::attest::Conformance {};                                                  \
  TEST_P(Name, Holds) {                                                                          \
    const auto result = ::attest::run_conformance_case(GetParam().plugin, GetParam().which);     \
    if (result.passed && result.checked == 0) GTEST_SKIP() << "nothing was judged";              \
    EXPECT_TRUE(result.passed) << result.message;                                                \
  }                                                                                              \
  INSTANTIATE_TEST_SUITE_P(Attest, Name, testing::ValuesIn(::attest::conformance_params(table)), \
                           ::attest::conformance_name)

}  // namespace attest
