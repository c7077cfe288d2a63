// SPDX-License-Identifier: Apache-2.0
// The built-in `chunked`: blocks of 64 keys, of which a row computes what it sees.
#include <cmath>

#include "bench/cost/attention_cost.hpp"
#include "bench/cost/segment_sizes.hpp"

namespace attest {

namespace {

constexpr double kBlock = 64;
constexpr double kLook = 32;      // bytes of what a row remembers of where it looks
constexpr double kRotation = 7;   // a pair: 4 products, 2 sums, the direction of the sine
constexpr double kLaneSums = 15;  // a dot product has 16 partial sums

/// From q.k to the logit, and its slope.
double score_flops(const AttentionProblem& p) {
  return 5 + (p.softcap > 0 ? 3 : 0) + (p.bias != BiasKind::none ? 1 : 0);
}

/// Queries of a work item, where they look, one block of keys and values.
double workspace_bytes(const AttentionProblem& p, const SegmentSizes& most) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const double heads = heads_per_kv_head(p);
  return kLook * heads * (most.queries + std::ceil(most.queries / 32)) +
         compute_bytes(p) * (heads * most.queries * dim + kBlock * (dim + v_dim));
}

AttentionCost forward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  AttentionCost cost;
  cost.flops.matrix = 2 * dim * n.visible + 2 * v_dim * n.kept;
  // A maximum that moves costs exp and a difference, and the row of the output.
  cost.flops.softmax =
      3 * n.scored + n.row_tiles + n.row_tiles * (2 + v_dim) + n.rows_with_key * (3 + v_dim);
  cost.flops.other = n.visible * (score_flops(p) + kLaneSums) +
                     (n.rows + n.tile_keys) * rotation_flops(p, kRotation);
  cost.bytes = compulsory_bytes(p);
  const SegmentSizes most = largest_segment(p);
  const double rows = most.queries * heads_per_kv_head(p);
  cost.extra_bytes = workspace_bytes(p, most) + rows * compute_bytes(p) * (3 + v_dim);
  cost.saved_bytes = static_cast<double>(p.batch * p.num_heads * p.q_len) * compute_bytes(p);
  return cost;
}

/// With the lse of the forward call.
AttentionCost backward(const AttentionProblem& p, const PairCounts& n) {
  const auto dim = static_cast<double>(p.head_dim), v_dim = static_cast<double>(p.v_head_dim);
  const bool d_q = wants_gradient(p, Gradient::q), d_k = wants_gradient(p, Gradient::k),
             d_v = wants_gradient(p, Gradient::v);
  // P, dP and dS of every pair; the gradient of the bias forms them once more (and turns keys up to
  // once for 32 of its rows, which is not counted).
  Flops formed;
  formed.matrix = 2 * dim * n.visible + 2 * v_dim * n.kept;
  formed.softmax = n.scored * (2 + 3 + 1) + n.kept + 2 * v_dim * n.rows;
  formed.other = n.visible * (score_flops(p) + kLaneSums) + n.kept * kLaneSums + 3 * n.scored +
                 (n.rows + n.tile_keys) * rotation_flops(p, kRotation);
  const bool others =
      d_q || d_k || d_v || wants_gradient(p, Gradient::slopes) || wants_gradient(p, Gradient::sink);
  AttentionCost cost;
  cost.flops = (others + wants_gradient(p, Gradient::bias)) * formed;
  // All three are summed, whichever are asked for.
  cost.flops.matrix += others * n.scored * (4 * dim + 2 * v_dim);
  cost.flops.softmax += others * 4 * n.sink_rows_with_key;
  cost.flops.other += d_q * n.rows * (dim + rotation_flops(p, kRotation)) +
                      d_k * n.keys * (dim + rotation_flops(p, kRotation)) + d_v * n.keys * v_dim;
  cost.bytes = compulsory_bytes(p);
  const SegmentSizes most = largest_segment(p);
  const double rows = most.queries * heads_per_kv_head(p);
  const double row_state = p.dtype == DType::f64 ? 40 : 24;
  cost.extra_bytes = workspace_bytes(p, most) + rows * row_state +
                     compute_bytes(p) * (rows + most.keys) * (dim + v_dim);
  return cost;
}

ATTEST_ATTENTION_COST(chunked, {.name = "chunked",
                                .summary = "the built-in chunked: online softmax, visible pairs",
                                .tile = {.rows = 1, .keys = 64},
                                .forward = forward,
                                .backward = backward});

}  // namespace
}  // namespace attest
