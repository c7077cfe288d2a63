// SPDX-License-Identifier: Apache-2.0
// What several requirements need: which rows see which keys, and whether two calls gave the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

/// visible_set() of every (b, h), flat: [B * Hq * Lq * Lk].
std::vector<std::uint8_t> visible_everywhere(const AttentionProblem& problem,
                                             const AttentionInputs& inputs);

inline std::size_t row_index(const AttentionProblem& problem, std::int64_t b, std::int64_t h,
                             std::int64_t i) {
  return static_cast<std::size_t>((b * problem.num_heads + h) * problem.q_len + i);
}
inline std::int64_t head_group(const AttentionProblem& problem, std::int64_t h) {
  return h / (problem.num_heads / problem.num_kv_heads);
}
std::size_t num_rows(const AttentionProblem& problem);

/// "o[0,1,2,3]" and the like, from a flat index.
std::vector<std::int64_t> output_index(const AttentionProblem& problem, Output output,
                                       std::size_t flat);

/// "o[0,0,1,0]"
std::string element_name(const AttentionProblem& problem, Output output, std::size_t flat);

/// Both calls of the standard pair came back with ATTEST_OK, or the result that says why not.
std::optional<CaseResult> judge_pair(CaseContext& context, const AttentionProblem& problem);

/// The bits of `after` must be those of `before` in the rows (one per (b, h, i)) that are watched;
/// empty: in all. `what` completes the sentence "... changes o[0,0,1,0] from 1 to 2".
CaseResult differing_bits(const AttentionProblem& problem, const Observation& before,
                          const Observation& after, const std::vector<std::uint8_t>& watched,
                          Reason reason, const std::string& what);

/// The rows of `changed` must equal those of `base` bit for bit wherever `watched` (one per
/// (b, h, i)) is set. A kernel that does not promise to be deterministic is held to the oracle in
/// these rows instead. `what` completes the sentence "... changes o[0,0,1,0]".
CaseResult compare_rows(CaseContext& context, const AttentionProblem& problem,
                        const Observation& base, const Observation& changed,
                        const std::vector<std::uint8_t>& watched, Reason reason,
                        const std::string& what);
/// The same where other promises than to be deterministic decide whether bits are owed.
CaseResult compare_rows(CaseContext& context, const AttentionProblem& problem,
                        const Observation& base, const Observation& changed,
                        const std::vector<std::uint8_t>& watched, Reason reason,
                        const std::string& what, bool bits_are_promised);

/// The failure of one element, with the numbers.
CaseResult element_failure(const AttentionProblem& problem, Output output, std::size_t flat,
                           double expected, double actual, Reason reason, std::string detail);

/// Uses some declared feature that hides keys; adds one, chosen by the seed, where there is none.
/// nullopt where the declaration has no such feature.
std::optional<AttentionProblem> with_hidden_keys(AttentionProblem problem,
                                                 const Declaration& declaration);

/// k and v of every sequence are stored apart, so that one of them can be changed alone.
void store_batches_apart(AttentionProblem& problem, const Declaration& declaration);

/// Heads and lengths with work for several threads at once: a race shows only where they overlap,
/// and starting a thread takes as long as 10,000 triples.
void give_threads_work(AttentionProblem& problem);

}  // namespace attest
