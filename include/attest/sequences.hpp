// SPDX-License-Identifier: Apache-2.0
// Row ranges of the sequences of a problem (docs/semantics.md section 3), for two questions alone:
// is the problem legal, and which features does it use. The oracle and the implementations derive
// positions and visibility on their own; an answer must never be computed from these.
#pragma once

#include <cstdint>
#include <vector>

#include "attest/problem.hpp"

namespace attest {

/// Query rows [q0, q1), key rows [k0, k1); `offset` is qpos of row q0.
struct SequenceRows {
  std::int64_t q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  std::int64_t offset = 0;
};

/// One entry per sequence, or one for all where no field is given per sequence (a batch of 2^50
/// must not need memory here). Total: missing entries count as absent, sums saturate.
std::vector<SequenceRows> sequence_rows(const AttentionProblem& problem);

/// The answer depends on qpos: something compares query positions with key positions.
bool uses_query_positions(const AttentionProblem& problem);

std::int64_t saturating_add(std::int64_t a, std::int64_t b);
std::int64_t saturating_subtract(std::int64_t a, std::int64_t b);
std::int64_t saturating_multiply(std::int64_t a, std::int64_t b);

}  // namespace attest
