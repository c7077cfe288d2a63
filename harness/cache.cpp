// SPDX-License-Identifier: Apache-2.0
#include "harness/cache.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace attest {

namespace {

/// Pages that sequence b has rows on once the call is done.
std::int64_t pages_in_use(const AttentionProblem& p, std::int64_t b) {
  const std::int64_t rows = cached_rows(p, b) + new_rows(p, b);
  return std::min((rows + p.page_size - 1) / p.page_size, pages_per_sequence(p));
}

/// 0 .. count - 1 in an order that the seed decides.
std::vector<std::int64_t> shuffled_pages(const AttentionProblem& p, std::int64_t count) {
  std::vector<std::int64_t> pages(static_cast<std::size_t>(count));
  for (std::size_t n = 0; n < pages.size(); ++n) pages[n] = static_cast<std::int64_t>(n);
  std::mt19937_64 random(p.seed);  // the same on every machine, unlike std::shuffle
  for (std::size_t n = pages.size(); n > 1; --n) std::swap(pages[n - 1], pages[random() % n]);
  return pages;
}

void hand_out_pages(const AttentionProblem& p, CachePlan& plan) {
  plan.table.assign(static_cast<std::size_t>(p.batch * plan.pages_per_sequence),
                    CachePlan::kNoPage);
  const std::int64_t shared = std::min(shared_pages(p), plan.pages_per_sequence);
  std::int64_t used = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) used += pages_in_use(p, b) - (b > 0 ? shared : 0);
  const bool in_order = p.pages == PageOrder::in_order;
  // One unused page in three, and one at least: what belongs to nobody must not be read.
  plan.entries = in_order ? p.batch * plan.pages_per_sequence : used + used / 2 + 1;
  std::vector<std::int64_t> pages;
  if (!in_order) pages = shuffled_pages(p, plan.entries);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const auto first = static_cast<std::size_t>(b * plan.pages_per_sequence);
    for (std::int64_t n = 0; n < pages_in_use(p, b); ++n)
      plan.table[first + static_cast<std::size_t>(n)] =
          in_order              ? b * plan.pages_per_sequence + n
          : b > 0 && n < shared ? plan.table[static_cast<std::size_t>(n)]
                                : pages[next++];
  }
}

/// Copies row (b, h, from) of one tensor to (entry, h, to) of another, for all heads.
void copy_row(const Dense<double>& source, std::int64_t b, std::int64_t from, Dense<double>& target,
              std::int64_t entry, std::int64_t to) {
  for (std::int64_t h = 0; h < source.shape[1]; ++h)
    for (std::int64_t c = 0; c < source.shape[3]; ++c)
      target.at(entry, h, to, c) = source.at(b, h, from, c);
}

}  // namespace

CachePlan plan_cache(const AttentionProblem& p) {
  CachePlan plan;
  if (p.cache != CacheKind::paged) {
    plan.entries = p.batch;
    plan.rows = cache_capacity(p);
    return plan;
  }
  plan.rows = p.page_size;
  plan.pages_per_sequence = pages_per_sequence(p);
  hand_out_pages(p, plan);
  return plan;
}

CachePlace place_of(const AttentionProblem& p, const CachePlan& plan, std::int64_t b,
                    std::int64_t position) {
  switch (p.cache) {
    case CacheKind::contiguous: return {b, position};
    case CacheKind::ring: return {b, position % plan.rows};
    case CacheKind::paged: break;
  }
  const std::int64_t page = position / plan.rows;
  return {plan.table[static_cast<std::size_t>(b * plan.pages_per_sequence + page)],
          position % plan.rows};
}

Positions held_positions(const AttentionProblem& p, std::int64_t b) {
  const std::int64_t end = cached_rows(p, b);
  const std::int64_t rows =
      p.cache == CacheKind::paged ? pages_per_sequence(p) * p.page_size : cache_capacity(p);
  if (p.cache == CacheKind::ring) return {std::max<std::int64_t>(end - rows, 0), end};
  return {0, std::min(end, rows)};
}

bool appends_fit(const AttentionProblem& p, std::int64_t b) {
  const std::int64_t rows = new_rows(p, b), end = cached_rows(p, b) + rows;
  if (p.cache == CacheKind::paged) return end <= pages_per_sequence(p) * p.page_size;
  if (end <= cache_capacity(p)) return true;
  return p.cache == CacheKind::ring && p.window_left >= 0 &&
         cache_capacity(p) - rows >= p.window_left;
}

Dense<double> new_rows_of(const AttentionProblem& p, const Dense<double>& whole) {
  Dense<double> rows({p.batch, whole.shape[1], p.q_len, whole.shape[3]});
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t i = 0; i < new_rows(p, b); ++i)
      copy_row(whole, b, cached_rows(p, b) + i, rows, b, i);
  return rows;
}

Dense<double> cached_rows_of(const AttentionProblem& p, const CachePlan& plan,
                             const Dense<double>& whole) {
  Dense<double> rows({plan.entries, whole.shape[1], plan.rows, whole.shape[3]});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Positions held = held_positions(p, b);
    for (std::int64_t position = held.first; position < held.end; ++position) {
      const CachePlace place = place_of(p, plan, b, position);
      copy_row(whole, b, position, rows, place.entry, place.row);
    }
  }
  return rows;
}

}  // namespace attest
