// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "attest/plugin.h"
#include "harness/cache.hpp"
#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::int64_t longest(const AttentionProblem& problem) {
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    rows = std::max(rows, cached_rows(problem, b) + new_rows(problem, b));
  return rows;
}

/// The same call with a cache that some sequence does not fit into: by one row, or by one page.
/// What it holds before the call fits.
std::optional<AttentionProblem> too_small(AttentionProblem problem) {
  std::int64_t held = 1, rows = longest(problem) - 1;
  for (std::int64_t b = 0; b < problem.batch; ++b) held = std::max(held, cached_rows(problem, b));
  if (problem.cache == CacheKind::paged) {
    rows = rows / problem.page_size * problem.page_size;
  } else if (problem.cache == CacheKind::ring && problem.window_left >= 0) {
    // Of the rows that the window still sees, the new ones would overwrite one.
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b) most = std::max(most, new_rows(problem, b));
    rows = std::min(rows, problem.window_left + most - 1);
    held = 1;
  }
  if (rows < held) return std::nullopt;
  problem.cache_rows = rows;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    if (!appends_fit(problem, b)) return problem;
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.cache_rows = 0;
  problem.q_len = std::max<std::int64_t>(problem.q_len, 1);
  problem.global_tokens = 0;
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode || problem.cache_rows != 0) return std::nullopt;
  if (!too_small(problem)) return std::nullopt;
  return problem;
}

/// What the call changed in the caches; o and lse may hold anything after a refusal.
std::optional<CaseResult> judge_refusal(const Observation& seen, const Declaration& declaration,
                                        const AttentionProblem& problem) {
  CaseResult result;
  result.verdict = Verdict::fail;
  const bool refused = seen.call.status == ATTEST_UNSUPPORTED || seen.call.status == ATTEST_INVALID;
  if (!seen.call.accident && seen.call.status == ATTEST_OK) {
    result.reason = Reason::wrong_accept;
    result.detail = "accepts new rows that the cache has no room for";
    return result;
  }
  if (seen.call.accident || !refused) {
    result = *judge_call(seen, declaration, problem);
    result.detail += " (on new rows that the cache has no room for, which should be refused)";
    return result;
  }
  for (const auto* changes : {&seen.inputs_modified, &seen.writes_outside}) {
    if (changes->empty()) continue;
    result.reason = Reason::input_modified;
    result.detail =
        "refuses new rows that the cache has no room for, but has written: " + changes->front();
    return result;
  }
  return std::nullopt;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  // Where they just fit they are served: else refusing everything would do.
  if (auto result = judge_call(context.first(problem), context.declaration(), problem))
    return *result;
  const AttentionProblem small = *too_small(problem);
  for (const CallOptions& options : {CallOptions{.flush = Flush::high, .poison = Poison::nan},
                                     CallOptions{.flush = Flush::low, .poison = Poison::finite}}) {
    const Observation seen = context.call(small, context.inputs(problem), options);
    if (auto result = judge_refusal(seen, context.declaration(), small)) return *result;
  }
  return {};
}

ATTEST_REQUIREMENT(cache_full, {
                                   .id = "CACHE-FULL",
                                   .sentence = "new rows that do not fit into the cache are "
                                               "refused, and then nothing is written to it",
                                   .operation = Operation::decode,
                                   .adapt = adapt,
                                   .check = check,
                                   .share = 60,
                               });

}  // namespace
}  // namespace attest
