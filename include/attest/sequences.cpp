// SPDX-License-Identifier: Apache-2.0
#include "attest/sequences.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace attest {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

std::int64_t entry(const std::vector<std::int64_t>& values, std::size_t index,
                   std::int64_t otherwise) {
  return index < values.size() ? values[index] : otherwise;
}

}  // namespace

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? kLeast : kMost;
}

std::int64_t saturating_subtract(std::int64_t a, std::int64_t b) {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < 0 ? kLeast : kMost;
}

std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? kMost : kLeast;
}

std::vector<SequenceRows> sequence_rows(const AttentionProblem& problem) {
  const bool packed = !problem.cu_seqlens_q.empty();
  std::size_t count = packed ? problem.cu_seqlens_q.size() - 1 : problem.batch > 0 ? 1 : 0;
  if (!packed)
    for (const auto* values : {&problem.left_pad_q, &problem.left_pad_k, &problem.seqlens_q,
                               &problem.seqlens_k, &problem.q_offset})
      count = std::max(count, values->size());
  std::vector<SequenceRows> sequences(count);
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    SequenceRows& rows = sequences[n];
    if (packed) {
      rows.q0 = problem.cu_seqlens_q[n];
      rows.q1 = problem.cu_seqlens_q[n + 1];
      rows.k0 = entry(problem.cu_seqlens_k, n, 0);
      rows.k1 = entry(problem.cu_seqlens_k, n + 1, 0);
    } else {
      rows.q0 = entry(problem.left_pad_q, n, 0);
      rows.q1 = entry(problem.seqlens_q, n, problem.q_len);
      rows.k0 = entry(problem.left_pad_k, n, 0);
      rows.k1 = entry(problem.seqlens_k, n, problem.kv_len);
    }
    switch (problem.align) {
      case Align::bottom_right:
        rows.offset = saturating_subtract(saturating_subtract(rows.k1, rows.k0),
                                          saturating_subtract(rows.q1, rows.q0));
        break;
      case Align::top_left: rows.offset = 0; break;
      case Align::q_offset: rows.offset = entry(problem.q_offset, n, 0); break;
    }
  }
  return sequences;
}

bool uses_query_positions(const AttentionProblem& problem) {
  // Key-anchored ALiBi is missing on purpose: it knows kpos alone.
  return problem.base != Base::full || problem.window_left >= 0 || problem.window_right >= 0 ||
         problem.alibi == AlibiKind::absolute || problem.alibi == AlibiKind::signed_ ||
         problem.rope != RopePairing::none || problem.bias == BiasKind::t5;
}

}  // namespace attest
