// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "harness/dice.hpp"
#include "harness/generate.hpp"

namespace attest {

namespace {

/// Queries times keys. A grid of lengths has 65,537 queries of two keys, and a chunk has no more
/// rows than its sequence: 4e9 pairs, minutes of a scalar kernel.
constexpr std::int64_t kMostPairs = std::int64_t{1} << 22;

/// Most lengths are those of one token behind a few others; a chunk may be the whole prompt.
void draw_lengths(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  p.kv_len = std::max(p.kv_len, p.q_len);
  if (p.kv_len > 0) p.q_len = std::min(p.q_len, std::max<std::int64_t>(kMostPairs / p.kv_len, 1));
  if (dice.one_in(2)) p.q_len = std::min<std::int64_t>(p.q_len, 1);
  if (!declaration.switch_lengths.empty() && dice.one_in(6)) {
    const auto n = dice.below(std::ssize(declaration.switch_lengths));
    p.kv_len = declaration.switch_lengths[static_cast<std::size_t>(n)] + dice.between(-1, 1);
    p.q_len = std::min(p.q_len, dice.between(1, 4));
    p.head_dim = std::min<std::int64_t>(p.head_dim, 16);
    p.v_head_dim = std::min<std::int64_t>(p.v_head_dim, 16);
  }
  p.q_len = std::min(p.q_len, p.kv_len);
  p.seqlens_q.clear();
  p.seqlens_k.clear();
  if (p.batch < 2 && !dice.one_in(4)) return;
  // Lengths of their own: 0, one below or at the end of a page, all.
  if (!dice.one_in(3))
    for (std::int64_t b = 0; b < p.batch; ++b)
      p.seqlens_k.push_back(dice.one_in(4) ? p.kv_len : dice.between(p.q_len, p.kv_len));
  if (declaration.has(Feature::seqlens_q) && dice.one_in(3))
    for (std::int64_t b = 0; b < p.batch; ++b) p.seqlens_q.push_back(dice.between(0, p.q_len));
}

void draw_ring(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  // A ring that has wrapped: once, several times, or exactly full.
  if (!declaration.has(Feature::window_left) || p.kv_len < 2 || dice.one_in(4)) return;
  p.global_tokens = 0;
  p.q_len = std::min(p.q_len, std::max<std::int64_t>(p.kv_len / 2, 1));
  for (std::int64_t& rows : p.seqlens_q) rows = std::min(rows, p.q_len);
  p.cache_rows = dice.between(p.q_len, p.kv_len);
  p.window_left = p.cache_rows - p.q_len;
  if (dice.one_in(3)) p.window_left = dice.between(0, p.window_left);
}

void draw_cache(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  const CacheScope& cache = declaration.cache;
  std::vector<CacheKind> kinds;
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged})
    if (cache.serves(kind)) kinds.push_back(kind);
  if (kinds.empty()) return;
  p.cache = kinds[static_cast<std::size_t>(dice.below(std::ssize(kinds)))];
  if (!dice.one_in(3)) p.cache_rows = p.kv_len + dice.pick<std::int64_t>({1, 2, 3, 7, 16});
  if (p.cache == CacheKind::ring) draw_ring(dice, declaration, p);
  if (p.cache == CacheKind::paged) {
    p.page_size = dice.pick<std::int64_t>({1, 2, 3, 4, 5, 8, 16, 64});
    p.pages = dice.pick(
        {PageOrder::in_order, PageOrder::shuffled, PageOrder::shuffled, PageOrder::shared});
  }
  if (p.rope != RopePairing::none && cache.rotated) p.cache_rotated = dice.one_in(2);
  if (cache.splits) p.num_splits = dice.pick<std::int64_t>({0, 0, 1, 2, 3, 5, 8, 64});
}

}  // namespace

AttentionProblem to_decode(AttentionProblem problem, const Declaration& declaration) {
  Dice dice(problem.seed, "to_decode", 0);
  problem.operation = Operation::decode;
  // A chunk that does not look ahead is what decoding is; the rest is served by some.
  if (declaration.has(Feature::causal) && problem.base == Base::full && !dice.one_in(3))
    problem.base = Base::causal;
  if (dice.one_in(3)) problem.batch = std::max<std::int64_t>(problem.batch, 2);
  draw_lengths(dice, declaration, problem);
  draw_cache(dice, declaration, problem);
  return make_legal(std::move(problem), declaration);
}

}  // namespace attest
