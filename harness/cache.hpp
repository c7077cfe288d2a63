// SPDX-License-Identifier: Apache-2.0
// Where the rows of a decode call lie in its caches (docs/semantics.md section 6).
#pragma once

#include <cstdint>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"

namespace attest {

/// k_cache is [entries, Hkv, rows, D], v_cache the same with Dv.
struct CachePlan {
  std::int64_t entries = 0, rows = 0;
  std::int64_t pages_per_sequence = 0;
  /// [B, pages_per_sequence], kNoPage where a sequence has no row on a page.
  std::vector<std::int64_t> table;

  static constexpr std::int64_t kNoPage = -1;
};

/// Also of a problem whose new rows do not fit: they have no place then.
CachePlan plan_cache(const AttentionProblem& problem);

/// Entry and row of a cache.
struct CachePlace {
  std::int64_t entry, row;
};
CachePlace place_of(const AttentionProblem& problem, const CachePlan& plan, std::int64_t b,
                    std::int64_t position);

/// Positions [first, end) of sequence b that the cache holds before the call.
struct Positions {
  std::int64_t first, end;
};
Positions held_positions(const AttentionProblem& problem, std::int64_t b);

/// Whether the new rows of sequence b have a place.
bool appends_fit(const AttentionProblem& problem, std::int64_t b);

/// body(b, position, place) for every row that the call appends, in order; i = position -
/// cached_rows(b) is its row in k and v. Nothing where the rows of some sequence do not fit.
template <class Body>
void for_each_append(const AttentionProblem& problem, const CachePlan& plan, Body&& body) {
  for (std::int64_t b = 0; b < problem.batch; ++b)
    if (!appends_fit(problem, b)) return;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t first = cached_rows(problem, b);
    for (std::int64_t i = 0; i < new_rows(problem, b); ++i)
      body(b, first + i, place_of(problem, plan, b, first + i));
  }
}

/// The new rows of a tensor of whole sequences [B, H, Lk, X], as [B, H, Lq, X]; rows that a
/// sequence does not have are 0.
Dense<double> new_rows_of(const AttentionProblem& problem, const Dense<double>& whole);

/// The rows that the cache holds before the call, as [entries, H, rows, X]; the others are 0.
Dense<double> cached_rows_of(const AttentionProblem& problem, const CachePlan& plan,
                             const Dense<double>& whole);

}  // namespace attest
