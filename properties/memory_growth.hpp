// SPDX-License-Identifier: Apache-2.0
// How the memory that one call needs beyond its tensors grows with its lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

/// The longest of the lengths that are compared: an eighth, a quarter, half and all of it.
inline constexpr std::int64_t kMemoryLength = 2048;

/// Why nothing can be said of the growth: it is not promised, or memory cannot be measured.
std::optional<std::string> skip_without_linear_memory(const Declaration& declaration);

/// One head of 16 channels (or what the kernel has next to that) at kMemoryLength; plain first, and
/// then with features whose tensors grow no faster than the lengths.
AttentionProblem draw_long_head(const Declaration& declaration, std::uint64_t seed,
                                std::uint64_t index);
std::optional<AttentionProblem> adapt_to_long_head(AttentionProblem problem, const Declaration&);

/// Whether these bytes, at lengths of which each is twice the one before it, grow with the product
/// of the lengths.
bool grows_with_product(const std::vector<std::uint64_t>& bytes, std::int64_t longest);

/// Measures the call at all lengths, each in a process that has made no other call.
CaseResult check_growth(CaseContext& context, const AttentionProblem& problem);

}  // namespace attest
