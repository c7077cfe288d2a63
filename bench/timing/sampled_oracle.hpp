// SPDX-License-Identifier: Apache-2.0
// The oracle on calls that are too large to be judged whole.
#pragma once

#include <optional>
#include <string>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "harness/observe.hpp"
#include "harness/shared_answers.hpp"

namespace attest {

/// Rows [first, first + rows) of query head h of sequence b, as a problem of their own on the same
/// numbers: one head, the keys that it reads, positions by q_offset. nullopt where the problem has
/// tensors of pairs, lengths or packing, which a strip would have to cut.
struct Strip {
  std::int64_t b = 0, h = 0, first = 0, rows = 0;
};
struct StripProblem {
  AttentionProblem problem;
  AttentionInputs inputs;
};
std::optional<StripProblem> cut_strip(const AttentionProblem& problem,
                                      const AttentionInputs& inputs, const Strip& strip);

/// Why the output is wrong, in one line; nullopt where it is right. All of it up to 2^29 triples
/// of query, key and channel; beyond that strips of 4 rows from 8 places, of forward calls that can
/// be cut.
std::optional<std::string> judge_for_timing(const AttentionProblem& problem,
                                            const AttentionInputs& inputs,
                                            const PrecisionProfile& profile,
                                            const Observation& seen, SharedAnswers& answers);

}  // namespace attest
