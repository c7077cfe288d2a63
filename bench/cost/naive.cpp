// SPDX-License-Identifier: Apache-2.0
// The built-in `naive`: scores of 64 query rows with every key, visible or not; backward the whole
// matrices of a head.
#include <algorithm>

#include "bench/cost/attention_cost.hpp"
#include "bench/cost/segment_sizes.hpp"

namespace attest {

namespace {

constexpr double kRows = 64;     // of the score matrix at a time
constexpr double kRotation = 7;  // a pair: 4 products, 2 sums, the direction of the sine

/// From q.k to the score, and its slope.
double score_flops(const AttentionProblem& p) {
  return 2 + (p.alibi != AlibiKind::none ? 1 : 0) + (p.softcap > 0 ? 5 : 0) +
         (p.bias != BiasKind::none ? 1 : 0);
}

AttentionCost forward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const bool dropout = p.dropout_p > 0;
  AttentionCost cost;
  cost.flops.matrix = 2 * dim * n.grid + 2 * v_dim * n.kept;
  cost.flops.softmax = 2 * n.scored + n.grid + 2 * n.rows +
                       n.rows_with_key * (v_dim + (p.want_lse ? 2 : 0)) +
                       (dropout ? n.kept_grid : 0);
  cost.flops.other =
      n.visible * score_flops(p) + (n.rows + n.keys_of_queries) * rotation_flops(p, kRotation);
  cost.bytes = compulsory_bytes(p);
  const double keys = largest_segment(p).keys;
  cost.extra_bytes = compute_bytes(p) * (kRows * keys + dim + v_dim + keys * (2 * dim + v_dim));
  return cost;
}

AttentionCost backward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const auto share = heads_per_kv_head(p);
  const bool d_q = wants_gradient(p, Gradient::q), d_k = wants_gradient(p, Gradient::k),
             d_v = wants_gradient(p, Gradient::v);
  // P, dP and dS of every head; the gradient of the bias forms them once more.
  Flops formed;
  formed.matrix = n.grid * (2 * dim + 2 * v_dim);
  formed.softmax = n.rows * (2 + 2 * v_dim) + n.scored * (3 + 1 + 2 + 3) + n.kept + 5 * n.sink_rows;
  // Keys are loaded and turned for each query head.
  formed.other = n.visible * score_flops(p) + 2 * n.scored +
                 (n.rows + share * n.keys) * rotation_flops(p, kRotation);
  const bool others =
      d_q || d_k || d_v || wants_gradient(p, Gradient::slopes) || wants_gradient(p, Gradient::sink);
  AttentionCost cost;
  cost.flops = (others + wants_gradient(p, Gradient::bias)) * formed;
  cost.flops.matrix += n.scored * (2 * dim * (d_q + d_k) + 2 * v_dim * d_v);
  cost.flops.other += d_q * n.rows * (dim + rotation_flops(p, kRotation)) +
                      d_k * n.keys * (dim + rotation_flops(p, kRotation)) + d_v * n.keys * v_dim;
  cost.bytes = compulsory_bytes(p);
  const SegmentSizes most = largest_segment(p);
  cost.extra_bytes = most.queries * most.keys * (1 + 3 * compute_bytes(p)) +
                     compute_bytes(p) * ((most.queries + 2 * most.keys) * (dim + v_dim) +
                                         most.keys * std::max(dim, v_dim));
  return cost;
}

ATTEST_ATTENTION_COST(naive, {.name = "naive",
                              .summary = "the built-in naive: every key of a row, visible or not",
                              .forward = forward,
                              .backward = backward});

}  // namespace
}  // namespace attest
