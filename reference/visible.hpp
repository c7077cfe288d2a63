// SPDX-License-Identifier: Apache-2.0
// Positions and visibility: docs/semantics.md section 3, one function per rule, and their AND.
//
// rows_of() looks up once per sequence which segment every row belongs to; the rules then cost a
// few comparisons per (i, j). Nothing here reads q, k or v.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"

namespace attest {

/// One (sequence, segment): query rows [q0, q1) and key rows [k0, k1).
struct Segment {
  std::int64_t q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  std::int64_t offset = 0;      ///< qpos(i) = i - q0 + offset
  std::int64_t prefix_len = 0;  ///< n of base `prefix(n)`; unused under other bases
};

/// Negative where Lq > Lk under bottom_right: legal.
constexpr std::int64_t qpos(const Segment& segment, std::int64_t i) {
  return i - segment.q0 + segment.offset;
}
constexpr std::int64_t kpos(const Segment& segment, std::int64_t j) { return j - segment.k0; }

/// The position that key row j is still to be rotated to: none, 0, where the cache of a decode call
/// holds it rotated.
constexpr std::int64_t rotation_kpos(const AttentionProblem& problem, const Segment& segment,
                                     std::int64_t j) {
  const bool rotated = problem.cache_rotated && kpos(segment, j) < segment.offset;
  return rotated ? 0 : kpos(segment, j);
}

/// A row outside every range: a padding query, or a key that nothing sees. Never read.
inline constexpr std::int32_t kNoSegment = -1;

/// The segments of one sequence, and the segment of every row.
struct Rows {
  std::vector<Segment> segments;
  std::vector<std::int32_t> query_segment;  ///< [Lq], index into segments or kNoSegment
  std::vector<std::int32_t> key_segment;    ///< [Lk]

  bool real_query(std::int64_t i) const {
    return query_segment[static_cast<std::size_t>(i)] != kNoSegment;
  }
  bool real_key(std::int64_t j) const {
    return key_segment[static_cast<std::size_t>(j)] != kNoSegment;
  }
  /// The segment of a real row.
  const Segment& of_query(std::int64_t i) const {
    return segments[static_cast<std::size_t>(query_segment[static_cast<std::size_t>(i)])];
  }
  const Segment& of_key(std::int64_t j) const {
    return segments[static_cast<std::size_t>(key_segment[static_cast<std::size_t>(j)])];
  }
};

/// The segments of sequence b: one without cu_seqlens, all of them with (a packed batch has
/// batch = 1). O(Lq + Lk + segments).
Rows rows_of(const AttentionProblem& problem, std::int64_t b);

/// base: `full` always; `causal` kpos <= qpos; `prefix(n)` kpos < n or kpos <= qpos.
inline bool base_visible(const AttentionProblem& problem, const Segment& segment,
                         std::int64_t query_position, std::int64_t key_position) {
  switch (problem.base) {
    case Base::full: return true;
    case Base::causal: return key_position <= query_position;
    case Base::prefix: return key_position < segment.prefix_len || key_position <= query_position;
  }
  return false;
}

/// band: qpos - left <= kpos <= qpos + right, or 0 <= qpos < g, or 0 <= kpos < g. A bound of -1 is
/// no bound. Written as differences, so that a window as large as the type does not overflow.
inline bool band_visible(const AttentionProblem& problem, std::int64_t query_position,
                         std::int64_t key_position) {
  const bool left = problem.window_left < 0 || query_position - key_position <= problem.window_left;
  const bool right =
      problem.window_right < 0 || key_position - query_position <= problem.window_right;
  const bool global_query = 0 <= query_position && query_position < problem.global_tokens;
  const bool global_key = 0 <= key_position && key_position < problem.global_tokens;
  return (left && right) || global_query || global_key;
}

/// range: i and j are real rows.
inline bool range_visible(const Rows& rows, std::int64_t i, std::int64_t j) {
  return rows.real_query(i) && rows.real_key(j);
}

/// segment: both rows belong to the same one.
inline bool segment_visible(const Rows& rows, std::int64_t i, std::int64_t j) {
  return rows.query_segment[static_cast<std::size_t>(i)] ==
         rows.key_segment[static_cast<std::size_t>(j)];
}

/// mask: mask[b,h,i,j], axes of size 1 broadcast; h is a query head.
inline bool mask_visible(const AttentionInputs& inputs, std::int64_t b, std::int64_t h,
                         std::int64_t i, std::int64_t j) {
  return !inputs.mask.present || inputs.mask.values[inputs.mask.broadcast_index(b, h, i, j)] != 0;
}

/// blocks: bitmap[b,h,floor(i/block_q),floor(j/block_k)].
inline bool block_visible(const AttentionProblem& problem, const AttentionInputs& inputs,
                          std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return !inputs.blocks.present || inputs.blocks.values[inputs.blocks.broadcast_index(
                                       b, h, i / problem.block_q, j / problem.block_k)] != 0;
}

/// Every factor apart, for explanations. base and band stay true where a row has no position.
struct VisibleFactors {
  bool base = true, band = true, range = true, segment = true, mask = true, blocks = true;
  bool all() const { return base && band && range && segment && mask && blocks; }
};

inline VisibleFactors visible_factors(const AttentionProblem& problem,
                                      const AttentionInputs& inputs, const Rows& rows,
                                      std::int64_t b, std::int64_t h, std::int64_t i,
                                      std::int64_t j) {
  VisibleFactors factors;
  factors.range = range_visible(rows, i, j);
  factors.segment = segment_visible(rows, i, j);
  factors.mask = mask_visible(inputs, b, h, i, j);
  factors.blocks = block_visible(problem, inputs, b, h, i, j);
  if (factors.range) {
    const std::int64_t query_position = qpos(rows.of_query(i), i);
    const std::int64_t key_position = kpos(rows.of_key(j), j);
    factors.base = base_visible(problem, rows.of_query(i), query_position, key_position);
    factors.band = band_visible(problem, query_position, key_position);
  }
  return factors;
}

/// visible(i, j) of section 3: all factors. A bias of -inf is no factor of it (step 4 of section
/// 2): see bias_hides().
inline bool visible(const AttentionProblem& problem, const AttentionInputs& inputs,
                    const Rows& rows, std::int64_t b, std::int64_t h, std::int64_t i,
                    std::int64_t j) {
  if (!range_visible(rows, i, j) || !segment_visible(rows, i, j)) return false;
  const Segment& segment = rows.of_query(i);
  const std::int64_t query_position = qpos(segment, i);
  const std::int64_t key_position = kpos(segment, j);
  return base_visible(problem, segment, query_position, key_position) &&
         band_visible(problem, query_position, key_position) && mask_visible(inputs, b, h, i, j) &&
         block_visible(problem, inputs, b, h, i, j);
}

/// bias[b,h,i,j], axes of size 1 broadcast; 0 where there is none.
template <class T>
T bias_at(const RealTensors<T>& inputs, std::int64_t b, std::int64_t h, std::int64_t i,
          std::int64_t j) {
  return inputs.bias.present ? inputs.bias.values[inputs.bias.broadcast_index(b, h, i, j)] : T(0);
}

/// Step 4: the other way for a score to be -inf.
inline bool bias_hides(const AttentionInputs& inputs, std::int64_t b, std::int64_t h,
                       std::int64_t i, std::int64_t j) {
  return bias_at(inputs, b, h, i, j) == -std::numeric_limits<double>::infinity();
}

/// The key/value head of query head h: consecutive query heads share one.
constexpr std::int64_t kv_head(const AttentionProblem& problem, std::int64_t h) {
  return h / (problem.num_heads / problem.num_kv_heads);
}

}  // namespace attest
