// SPDX-License-Identifier: Apache-2.0
// Input values: each is a function of (seed, tensor, coordinates) alone, so that dropping a key
// leaves all other values alone, and the same case line gives the same bits on every machine:
// integer steps, + and *, no libm.
#pragma once

#include <string_view>

#include "attest/inputs.hpp"

namespace attest {

/// All tensors of a legal problem. Values of rows outside their range are generated too; layout
/// replaces them by poison.
AttentionInputs make_inputs(const AttentionProblem& problem);

std::string_view name(Family family);
/// Rows are exchangeable random numbers with scores that differ; only there does T_S alone convict
/// (docs/tolerance.md section 9).
bool is_generic(const AttentionProblem& problem);

/// A counter-based generator: 64 well-mixed bits from a key (splitmix64 steps).
std::uint64_t mix(std::uint64_t seed, std::uint64_t tensor, std::uint64_t a, std::uint64_t b,
                  std::uint64_t c, std::uint64_t d);

}  // namespace attest
