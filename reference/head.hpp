// SPDX-License-Identifier: Apache-2.0
// What the fast oracle prepares once per (sequence, KV head) and per tile of query rows: keys and
// queries rotated and laid out with rows across SIMD lanes, values with channels across them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/row_data.hpp"
#include "reference/visible.hpp"

namespace attest {

/// Query rows scored together: each loaded key serves four of them.
inline constexpr std::size_t kTileRows = 4;

/// cos and sin of theta_t at the position of every row, [R/2][stride]. Rows outside every range
/// hold those of position 0.
struct RotationTable {
  std::size_t pairs = 0, rows = 0, stride = 0;
  Buffer<double> cos, sin, cos_low, sin_low;
};

/// The low parts are filled for f64 problems alone.
void fill_rotations(const AttentionProblem& problem, const Rows& rows, bool of_queries,
                    RotationTable& table);

/// Rows of q or k with the channels outside: element (row, channel) at [channel * stride + row].
struct ColumnMajor {
  std::size_t channels = 0, rows = 0, stride = 0;
  Buffer<double> high, low;  ///< low: rotated rows of f64 problems; else 0
  std::size_t pairs = 0;     ///< rotated pairs, 0 without RoPE
  Buffer<double> norm;       ///< [pairs][stride]: sqrt(x^2 + y^2) of each pair
  // Of the queries alone:
  Buffer<double> abs, square, norm_square;  ///< |high|, high^2, norm^2
  bool finite[kTileRows] = {};              ///< the row as given holds no NaN or Inf
};

struct Head {
  ColumnMajor k;
  std::size_t v_channels = 0, v_stride = 0, zero_row = 0;
  Buffer<double> v;          ///< [kv_len + 1][v_stride], divided by unit; the last row is zeros
  Buffer<double> unit;       ///< [v_stride] exact powers of two, 1 but for f64 problems
  Buffer<double> max_abs_v;  ///< [v_stride] largest finite |v|, in units
  std::vector<std::uint8_t> bad;  ///< [kv_len] 1: k_j or v_j holds a NaN or an Inf
  bool any_bad = false;
  double value_load = 0;  ///< largest sum over all real keys of finite |v|, over the channels

  const double* v_row(std::int32_t row) const {
    return v.data() + static_cast<std::size_t>(row) * v_stride;
  }
};

/// Rotates rows [0, rows) of x by rows [first, first + rows) of the table, in double or
/// double-double.
using RotateFunction = void (*)(const RotationTable& table, std::size_t first, RopePairing pairing,
                                ColumnMajor& x);

/// `rotations` is null without RoPE.
void load_head(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
               std::int64_t b, std::int64_t kv_head, const RotationTable* rotations,
               RotateFunction rotate, Head& head);
/// Query rows [first, first + count) of head h, always in a stride of kTileRows.
void load_queries(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
                  std::int64_t h, std::int64_t first, std::int64_t count,
                  const RotationTable* rotations, RotateFunction rotate, ColumnMajor& q);

/// Channel numbers of the two parts of pair t.
inline std::size_t first_of_pair(RopePairing pairing, std::size_t t) {
  return pairing == RopePairing::interleaved ? 2 * t : t;
}
inline std::size_t second_of_pair(RopePairing pairing, std::size_t pairs, std::size_t t) {
  return pairing == RopePairing::interleaved ? 2 * t + 1 : t + pairs;
}

}  // namespace attest
