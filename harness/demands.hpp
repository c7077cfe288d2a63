// SPDX-License-Identifier: Apache-2.0
// The file of `attest check --require`: what a run must cover, one demand a line, '#' starts a
// comment (docs/require.md):
//
//   dtype bf16
//   feature causal
//   head_dim 64-128
//   promise deterministic
//   precision bf16=mma_f32acc
//   requirement MASK-NOLEAK
//   cases >= 1000
//   refused <= 0.1
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/record.hpp"
#include "attest/result.hpp"

namespace attest {

struct Demand {
  enum class Kind : std::uint8_t {
    dtype,
    feature,
    head_dim,
    promise,
    precision,
    requirement,
    cases,
    refused
  };
  Kind kind = Kind::dtype;
  std::string word;          ///< dtype, feature, promise, requirement id, or precision preset
  DType dtype = DType::f32;  ///< of precision
  std::int64_t first = 0, last = 0;  ///< of head_dim; the least number of cases in `first`
  double most = 0;                   ///< of refused
  int line_number = 0;
  std::string line;
};

/// `known_requirements` are the ids that exist; the error names line, column and word.
Result<std::vector<Demand>> parse_demands(std::string_view text,
                                          const std::vector<std::string>& known_requirements);

/// Fills record.demands from what the run came to and what the kernel declares.
void check_demands(const std::vector<Demand>& demands, const Declaration& declaration,
                   Record& record);

}  // namespace attest
