// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 (Dao 2023): tiles of 128 query rows and 64 keys, each computed whole or skipped
// whole; nothing of the size queries x keys in memory; backward from lse, five products.
#include <algorithm>

#include "bench/cost/attention_cost.hpp"

namespace attest {

namespace {

constexpr double kRows = 128, kKeys = 64;

/// Products, in entries of scores. A call of fewer rows than a tile has (decoding) pads none here.
double entries_of(const AttentionProblem& p, const PairCounts& n) {
  return n.tiles * std::min(kRows, static_cast<double>(p.q_len)) * kKeys;
}

double score_flops(const AttentionProblem& p) {
  return 1 + (p.softcap > 0 ? 3 : 0) + (p.alibi != AlibiKind::none ? 2 : 0) +
         (p.bias != BiasKind::none ? 1 : 0);
}

double row_bytes(const AttentionProblem& p) {  // one f32 for each query row
  return 4 * static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.q_len);
}

AttentionCost forward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const double entries = entries_of(p, n);
  AttentionCost cost;
  cost.flops.matrix = entries * (2 * dim + 2 * v_dim);
  cost.flops.softmax = entries * 3 + entries / kKeys * (3 + v_dim) + n.rows * (2 + v_dim);
  cost.flops.other = entries * score_flops(p) + (n.rows + n.keys) * rotation_flops(p, 6);
  cost.bytes = compulsory_bytes(p);
  cost.saved_bytes = row_bytes(p);
  return cost;
}

AttentionCost backward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const double entries = entries_of(p, n);
  AttentionCost cost;
  cost.flops.matrix = entries * (6 * dim + 4 * v_dim);
  cost.flops.softmax = entries * 4 + n.rows * 2 * v_dim;
  cost.flops.other = entries * (score_flops(p) + (p.softcap > 0 ? 2 : 0)) +
                     (n.rows + n.keys) * rotation_flops(p, 12);
  cost.bytes = compulsory_bytes(p);
  // dQ is summed in f32 over blocks of keys, and delta is kept.
  cost.extra_bytes = row_bytes(p) * (1 + dim);
  return cost;
}

ATTEST_ATTENTION_COST(flash, {.name = "flash",
                              .summary = "FlashAttention-2: tiles of 128 x 64, whole or skipped",
                              .tile = {.rows = 128, .keys = 64},
                              .forward = forward,
                              .backward = backward});

}  // namespace
}  // namespace attest
