// SPDX-License-Identifier: Apache-2.0
// What a long call of the kernel takes beyond its tensors, for the record. No verdict depends on
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/requirement.hpp"

namespace attest {

/// The calls that are measured: backward of one head of 64 channels (or what the kernel has next to
/// that), f32 and causal where it serves them, at 8192 queries and keys. A kernel that does not
/// promise memory=linear may hold what grows with their product: at 2048 and at 4096. Empty where
/// the kernel has no backward; without what is longer than it serves.
std::vector<AttentionProblem> measured_calls(const Declaration& declaration);

/// One of them in a process that has made no other; `trouble` says why there is nothing to show:
/// "" where memory cannot be measured at all.
std::optional<CallMemory> measure_memory(CaseContext& context, const AttentionProblem& problem,
                                         std::string& trouble);

}  // namespace attest
