// SPDX-License-Identifier: Apache-2.0
#include "reference/visible.hpp"

#include <algorithm>

#include "reference/definition.hpp"

namespace attest {
namespace {

/// values[index], or what an absent list stands for.
std::int64_t value_or(const std::vector<std::int64_t>& values, std::int64_t index,
                      std::int64_t absent) {
  return values.empty() ? absent : values[static_cast<std::size_t>(index)];
}

/// The difference between the position of a query row and its row number within the range.
std::int64_t position_offset(const AttentionProblem& problem, const Segment& segment,
                             std::int64_t sequence) {
  switch (problem.align) {
    case Align::bottom_right: return (segment.k1 - segment.k0) - (segment.q1 - segment.q0);
    case Align::top_left: return 0;
    case Align::q_offset: return problem.q_offset[static_cast<std::size_t>(sequence)];
  }
  return 0;
}

void mark(std::vector<std::int32_t>& segment_of_row, std::int64_t first, std::int64_t end,
          std::size_t segment) {
  std::fill(segment_of_row.begin() + first, segment_of_row.begin() + end,
            static_cast<std::int32_t>(segment));
}

}  // namespace

Rows rows_of(const AttentionProblem& problem, std::int64_t b) {
  Rows rows;
  rows.query_segment.assign(static_cast<std::size_t>(problem.q_len), kNoSegment);
  rows.key_segment.assign(static_cast<std::size_t>(problem.kv_len), kNoSegment);

  const bool packed = !problem.cu_seqlens_q.empty();
  const std::size_t count = packed ? problem.cu_seqlens_q.size() - 1 : 1;
  for (std::size_t s = 0; s < count; ++s) {
    Segment segment;
    if (packed) {
      segment.q0 = problem.cu_seqlens_q[s];
      segment.q1 = problem.cu_seqlens_q[s + 1];
      segment.k0 = problem.cu_seqlens_k[s];
      segment.k1 = problem.cu_seqlens_k[s + 1];
    } else {
      segment.q0 = value_or(problem.left_pad_q, b, 0);
      segment.q1 = value_or(problem.seqlens_q, b, problem.q_len);
      segment.k0 = value_or(problem.left_pad_k, b, 0);
      segment.k1 = value_or(problem.seqlens_k, b, problem.kv_len);
    }
    const std::int64_t sequence = packed ? static_cast<std::int64_t>(s) : b;
    segment.offset = position_offset(problem, segment, sequence);
    segment.prefix_len = value_or(problem.prefix_len, sequence, 0);
    mark(rows.query_segment, segment.q0, segment.q1, s);
    mark(rows.key_segment, segment.k0, segment.k1, s);
    rows.segments.push_back(segment);
  }
  return rows;
}

std::vector<std::uint8_t> visible_set(const AttentionProblem& problem,
                                      const AttentionInputs& inputs, std::int64_t b,
                                      std::int64_t h) {
  const Rows rows = rows_of(problem, b);
  std::vector<std::uint8_t> set;
  set.reserve(static_cast<std::size_t>(problem.q_len * problem.kv_len));
  for (std::int64_t i = 0; i < problem.q_len; ++i)
    for (std::int64_t j = 0; j < problem.kv_len; ++j)
      set.push_back(visible(problem, inputs, rows, b, h, i, j) && !bias_hides(inputs, b, h, i, j));
  return set;
}

std::vector<std::uint8_t> real_query_rows(const AttentionProblem& problem, std::int64_t b) {
  const Rows rows = rows_of(problem, b);
  std::vector<std::uint8_t> real;
  for (std::int64_t i = 0; i < problem.q_len; ++i) real.push_back(rows.real_query(i));
  return real;
}

std::vector<std::uint8_t> real_key_rows(const AttentionProblem& problem, std::int64_t b) {
  const Rows rows = rows_of(problem, b);
  std::vector<std::uint8_t> real;
  for (std::int64_t j = 0; j < problem.kv_len; ++j) real.push_back(rows.real_key(j));
  return real;
}

std::vector<std::int64_t> query_positions(const AttentionProblem& problem, std::int64_t b) {
  const Rows rows = rows_of(problem, b);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < problem.q_len; ++i)
    positions.push_back(rows.real_query(i) ? qpos(rows.of_query(i), i) : 0);
  return positions;
}

std::vector<std::int64_t> key_positions(const AttentionProblem& problem, std::int64_t b) {
  const Rows rows = rows_of(problem, b);
  std::vector<std::int64_t> positions;
  for (std::int64_t j = 0; j < problem.kv_len; ++j)
    positions.push_back(rows.real_key(j) ? kpos(rows.of_key(j), j) : 0);
  return positions;
}

}  // namespace attest
