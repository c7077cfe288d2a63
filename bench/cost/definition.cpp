// SPDX-License-Identifier: Apache-2.0
// The formulas of docs/semantics.md as they stand: each value where it is asked for, so that a key
// is turned anew for each of its queries. Counts reference/attention.hpp and gradients.hpp.
#include "bench/cost/attention_cost.hpp"

namespace attest {

namespace {

/// Steps 0 to 3 of a scored pair but its dot product.
double score_flops(const AttentionProblem& p) {
  const double alibi = p.alibi == AlibiKind::none ? 0 : p.alibi == AlibiKind::key_anchored ? 1 : 2;
  return 1 + alibi + (p.softcap > 0 ? 3 : 0) + 2 + rotation_flops(p, 6);
}

/// 1 / sqrt(D), where no scale is given.
double scale_flops(const AttentionProblem& p) { return p.scale ? 0 : 2; }

AttentionCost forward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const double dropout = p.dropout_p > 0 ? 2 : 0;
  AttentionCost cost;
  cost.flops.matrix = n.scored * (2 * dim + 2 * v_dim);
  cost.flops.softmax = 4 * n.scored + 2 * n.rows_with_key + 3 * n.sink_rows_with_key;
  cost.flops.other = n.rows_with_key * (scale_flops(p) + rotation_flops(p, 6)) +
                     n.scored * (score_flops(p) + 1) + n.kept * dropout;
  cost.bytes = compulsory_bytes(p);
  return cost;
}

AttentionCost backward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const double inside = p.alibi_inside_softcap ? 1 : 0;
  const double slope_of_alibi = p.alibi == AlibiKind::none           ? 0
                                : p.alibi == AlibiKind::key_anchored ? 3
                                                                     : 4;
  AttentionCost cost = forward(p, n);
  cost.flops.matrix += n.scored * (6 * dim + 4 * v_dim);
  cost.flops.softmax += n.scored * 7 + 4 * n.sink_rows;
  cost.flops.other +=
      n.scored * (score_flops(p) + 1 + (p.softcap > 0 ? 8 + inside : 0) + 2 * dim +
                  rotation_flops(p, 6) + (p.bias != BiasKind::none ? 1 : 0) + slope_of_alibi) +
      n.rows * (2 * scale_flops(p) + rotation_flops(p, 18) + (p.sink != SinkKind::none ? 1 : 0)) +
      n.keys * rotation_flops(p, 6) + n.kept * (p.dropout_p > 0 ? 2 : 0);
  cost.bytes = compulsory_bytes(p);
  return cost;
}

ATTEST_ATTENTION_COST(definition, {.name = "definition",
                                   .summary = "the formula, each value where it is asked for",
                                   .forward = forward,
                                   .backward = backward});

}  // namespace
}  // namespace attest
