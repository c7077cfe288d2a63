// SPDX-License-Identifier: Apache-2.0
// Attention as a framework computes it op by op: a product, a softmax, a product, with the matrices
// of scores and of weights whole in memory, in the storage type.
#include "bench/cost/attention_cost.hpp"

namespace attest {

namespace {

double matrix_bytes(const AttentionProblem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(p.num_heads) *
         static_cast<double>(p.q_len) * static_cast<double>(p.kv_len) *
         static_cast<double>(size_of(p.dtype));
}

double entries(const AttentionProblem& p) {
  return matrix_bytes(p) / static_cast<double>(size_of(p.dtype));
}

/// Scale, and each of softcap (3), ALiBi (2), bias or mask (1) that is there.
double score_flops(const AttentionProblem& p) {
  const bool masked = p.base != Base::full || p.mask != MaskKind::none || p.blocks ||
                      p.window_left >= 0 || p.window_right >= 0;
  return 1 + (p.softcap > 0 ? 3 : 0) + (p.alibi != AlibiKind::none ? 2 : 0) +
         (p.bias != BiasKind::none || masked ? 1 : 0);
}

AttentionCost forward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  AttentionCost cost;
  cost.flops.matrix = entries(p) * (2 * dim + 2 * v_dim);
  cost.flops.softmax = entries(p) * (p.dropout_p > 0 ? 5 : 4);  // minus max, exp, sum, divide
  cost.flops.other = entries(p) * score_flops(p) + (n.rows + n.keys) * rotation_flops(p, 6);
  cost.bytes = compulsory_bytes(p) + 4 * matrix_bytes(p);  // both written and read
  cost.extra_bytes = 2 * matrix_bytes(p);
  cost.saved_bytes = matrix_bytes(p) * (p.dropout_p > 0 ? 2 : 1);
  return cost;
}

AttentionCost backward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  AttentionCost cost;
  cost.flops.matrix = entries(p) * (4 * dim + 4 * v_dim);
  cost.flops.softmax = entries(p) * (p.dropout_p > 0 ? 5 : 4);  // P (dP - sum P dP)
  cost.flops.other =
      entries(p) * (1 + (p.softcap > 0 ? 3 : 0)) + (n.rows + n.keys) * rotation_flops(p, 6);
  cost.bytes = compulsory_bytes(p) + 6 * matrix_bytes(p);  // P twice; dP and dS written and read
  cost.extra_bytes = 2 * matrix_bytes(p);
  return cost;
}

ATTEST_ATTENTION_COST(materialised, {.name = "materialised",
                                     .summary = "op by op: scores and weights whole in memory",
                                     .forward = forward,
                                     .backward = backward});

}  // namespace
}  // namespace attest
