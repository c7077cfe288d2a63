// SPDX-License-Identifier: Apache-2.0
// Kinds of calls beyond a plain forward one, which scope and matrix have rows for as they have for
// features: the operation, and what is particular to it.
#pragma once

#include <cstdint>
#include <string_view>

#include "attest/declaration.hpp"
#include "attest/problem.hpp"

namespace attest {

enum class CallKind : std::uint8_t {
  backward,
  decode,
  cache_contiguous,
  cache_ring,
  cache_paged,
  cache_rotated,
  splits,
  rope,
  rope_inverse,
};
inline constexpr int kNumCallKinds = static_cast<int>(CallKind::rope_inverse) + 1;

std::string_view name(CallKind kind);
bool is_of(CallKind kind, const AttentionProblem& problem);
bool declares(const Declaration& declaration, CallKind kind);

/// The kinds of a problem as bits, by enum value.
std::uint32_t call_kind_bits(const AttentionProblem& problem);

}  // namespace attest
