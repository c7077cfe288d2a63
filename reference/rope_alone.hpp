// SPDX-License-Identifier: Apache-2.0
// The rotary embedding as a component of its own: what the oracle says of a call of it.
#pragma once

#include "reference/expected.hpp"

namespace attest {

/// y as Expected::o, in double, for f64 problems in pairs of doubles. Rows that hold a NaN or an
/// infinity, or whose channels leave the range of double, are unspecified. The tolerance is that of
/// a rotated channel, 3/2 u_rope (|x cos| + |y sin|), and the rounding to the type of y; channels
/// that are not turned are exact.
Expected expect_rope(const AttentionProblem& problem, const AttentionInputs& inputs,
                     const PrecisionProfile& profile);

}  // namespace attest
