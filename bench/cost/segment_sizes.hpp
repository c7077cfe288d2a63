// SPDX-License-Identifier: Apache-2.0
// The largest segment of a problem, which decides what a work item holds.
#pragma once

#include <algorithm>

#include "attest/problem.hpp"
#include "reference/visible.hpp"

namespace attest {

struct SegmentSizes {
  double queries = 0, keys = 0;
};

/// Queries and keys apart: of the segments that have the most.
inline SegmentSizes largest_segment(const AttentionProblem& problem) {
  SegmentSizes most;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (const Segment& segment : rows_of(problem, b).segments) {
      most.queries = std::max(most.queries, static_cast<double>(segment.q1 - segment.q0));
      most.keys = std::max(most.keys, static_cast<double>(segment.k1 - segment.k0));
    }
  return most;
}

}  // namespace attest
