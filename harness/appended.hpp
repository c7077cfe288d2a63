// SPDX-License-Identifier: Apache-2.0
// What a decode call must leave in the caches: its new rows, behind the earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "harness/judge.hpp"
#include "harness/observe.hpp"
#include "reference/profile.hpp"

namespace attest {

struct WrongAppended {
  Output output = Output::appended_k;  ///< or appended_v
  std::size_t flat = 0;                ///< in [B, Hkv, Lq, D|Dv]
  double expected = 0, actual = 0;
};

/// The first element of the new rows that is not what it must be: keys and values bit for bit;
/// rotated keys within half an ulp and 3/2 u_rope (|x cos| + |y sin|), but for those that are not
/// finite. `compared` grows by the elements that were looked at.
std::optional<WrongAppended> wrong_appended(const AttentionProblem& problem,
                                            const AttentionInputs& inputs,
                                            const PrecisionProfile& profile,
                                            const Observation& seen, std::int64_t& compared);

}  // namespace attest
