// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the fast oracle, twice: in double for f32, f16 and bf16 problems, whose
// products are exact in it, and in double-double for f64 problems. Both are tables of plain
// functions, compiled for every SIMD target and chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/head.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// Raw scores of one tile, [kTileRows][stride], column j at [j - first_key].
struct TileScores {
  std::size_t first_key = 0, stride = 0;
  Buffer<double> dot, dot_low, abs_dot, square_dot, rope_abs, rope_square;
};

/// Steps 1 to 3 of docs/semantics.md section 2 for a row whose alibi and bias are filled in.
struct ScoreRules {
  double scale = 1, scale_low = 0;
  double softcap = 0;
  bool alibi = false, alibi_inside = false, bias = false, rope = false;
  double finite_mask = 0;  ///< a bias at or below it is meant as a mask
  double slope = 0;        ///< RowScores::alibi holds the distance on entry, slope * distance after
};

struct Engine {
  const char* target = "";  ///< SIMD target
  /// |fl(x op y) - x op y| <= unit |x op y|, and what one step of each kind costs in units.
  double unit = 0;
  double exp_units = 0, tanh_units = 0, log_units = 0;
  std::size_t lanes = 1;     ///< doubles of a vector: arrays are read that far behind their end
  bool compensated = false;  ///< sums of n terms lose n^2 2^-106, not n 2^-53
  double tiny = 0;           ///< absolute error of a weight near the underflow threshold

  RotateFunction rotate = nullptr;
  /// q.k and sum |q k| of all query rows with keys [first_key, end_key), first_key a multiple of
  /// eight; with `tolerance` also the sums of (q k)^2.
  void (*score_tile)(const ColumnMajor& k, const ColumnMajor& q, std::size_t end_key,
                     bool tolerance, TileScores& tile) = nullptr;
  /// From raw scores to z, m, l, lse and p.
  void (*weigh)(const ScoreRules& rules, RowScores& row) = nullptr;
  /// o, X, W2 and the sum of the weights' errors of every channel.
  void (*sum_values)(const RowScores& row, const Head& head, ChannelSums& sums) = nullptr;
};

/// Of the best SIMD target that is supported now: tests take targets away.
Engine double_engine();
Engine double_double_engine();

}  // namespace attest
