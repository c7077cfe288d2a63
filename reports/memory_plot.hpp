// SPDX-License-Identifier: Apache-2.0
// How the memory that kernels take grows with length, as a picture.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attest/bench_record.hpp"

namespace attest {

/// Cases that differ in their length alone, of one kernel and operation.
struct MemoryLine {
  std::string title;  ///< "naive", or "naive, backward" where there are several operations
  /// (L, bytes beyond the tensors), L = max(lq, lk), growing.
  std::vector<std::pair<double, double>> points;
};

/// Of every kernel and kind of case whose peak was measured at two lengths or more.
std::vector<MemoryLine> memory_lines(const BenchRecord& record);

/// n of bytes = c L^n through the two longest lengths: what is small beside L^n has least say
/// there.
double growth(const std::vector<std::pair<double, double>>& points);

/// An SVG, both axes logarithmic; beside each line stands its growth as "L^1.00".
std::string memory_svg(const std::vector<MemoryLine>& lines);

}  // namespace attest
