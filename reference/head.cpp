// SPDX-License-Identifier: Apache-2.0
#include "reference/head.hpp"

#include <algorithm>
#include <cmath>

#include "reference/definition.hpp"

namespace attest {
namespace {

/// Rows of a column-major array or a matrix of v.
std::size_t padded(std::int64_t count) {
  // A multiple of eight doubles, never of 4 KiB: columns at the same offset of a page would evict
  // each other.
  std::size_t stride = (static_cast<std::size_t>(count) + 7) / 8 * 8;
  if (stride % 512 == 0) stride += 8;
  return stride;
}

/// Copies rows [first, first + count) of (b, h), channels outside.
void load_columns(const Dense<double>& tensor, std::int64_t b, std::int64_t h, std::int64_t first,
                  std::int64_t count, std::size_t stride, ColumnMajor& x) {
  x.channels = static_cast<std::size_t>(tensor.shape[3]);
  x.rows = static_cast<std::size_t>(count);
  x.stride = stride;
  x.pairs = 0;
  double* out = x.high.reserve(x.channels * x.stride);
  if (count == 0 || x.channels == 0) return;
  const double* in = tensor.values.data() + tensor.index(b, h, first, 0);
  for (std::size_t row = 0; row < x.rows; ++row)
    for (std::size_t c = 0; c < x.channels; ++c) out[c * x.stride + row] = *in++;
}

/// The norms bound the rotated pairs whatever the angle: see docs/tolerance.md, RoPE.
void fill_norms(RopePairing pairing, std::size_t pairs, ColumnMajor& x) {
  x.pairs = pairs;
  double* norm = x.norm.reserve(pairs * x.stride);
  for (std::size_t t = 0; t < pairs; ++t) {
    const double* a = x.high.data() + first_of_pair(pairing, t) * x.stride;
    const double* b = x.high.data() + second_of_pair(pairing, pairs, t) * x.stride;
    for (std::size_t row = 0; row < x.rows; ++row)
      norm[t * x.stride + row] = std::sqrt(a[row] * a[row] + b[row] * b[row]);
  }
}

void position(const AttentionProblem& problem, const RotationTable* rotations, std::size_t first,
              RotateFunction rotate, ColumnMajor& x) {
  if (!rotations || x.rows == 0) return;
  fill_norms(problem.rope, rotations->pairs, x);
  // Channels that are not rotated have no low part.
  std::fill_n(x.low.reserve(x.channels * x.stride), x.channels * x.stride, 0.0);
  rotate(*rotations, first, problem.rope, x);
}

/// The power of two that brings the largest |v| of a channel into [1, 2). f64 values span more than
/// the squares of section 3.4 can hold; those of the narrower types do not.
double channel_unit(const AttentionProblem& problem, double largest) {
  if (problem.dtype != DType::f64 || !(largest > 0)) return 1;
  return std::ldexp(1.0, std::clamp(std::ilogb(largest), -1000, 1000));
}

}  // namespace

void fill_rotations(const AttentionProblem& problem, const Rows& rows, bool of_queries,
                    RotationTable& table) {
  const std::int64_t count = of_queries ? problem.q_len : problem.kv_len;
  table.pairs = static_cast<std::size_t>(effective_rope_dim(problem) / 2);
  table.rows = static_cast<std::size_t>(count);
  table.stride = padded(count);
  const bool with_low = problem.dtype == DType::f64;
  double* cos = table.cos.reserve(table.pairs * table.stride);
  double* sin = table.sin.reserve(table.pairs * table.stride);
  double* cos_low = with_low ? table.cos_low.reserve(table.pairs * table.stride) : nullptr;
  double* sin_low = with_low ? table.sin_low.reserve(table.pairs * table.stride) : nullptr;
  for (std::int64_t row = 0; row < count; ++row) {
    std::int64_t pos = 0;
    if (of_queries && rows.real_query(row)) pos = qpos(rows.of_query(row), row);
    if (!of_queries && rows.real_key(row)) pos = rotation_kpos(problem, rows.of_key(row), row);
    const std::vector<RopeAngle> angles = rope_angles(problem, pos);
    for (std::size_t t = 0; t < table.pairs; ++t) {
      const std::size_t at = t * table.stride + static_cast<std::size_t>(row);
      cos[at] = angles[t].cos_high;
      sin[at] = angles[t].sin_high;
      if (!with_low) continue;
      cos_low[at] = angles[t].cos_low;
      sin_low[at] = angles[t].sin_low;
    }
  }
}

void load_head(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
               std::int64_t b, std::int64_t kv_head, const RotationTable* rotations,
               RotateFunction rotate, Head& head) {
  load_columns(inputs.k, b, kv_head, 0, problem.kv_len, padded(problem.kv_len), head.k);
  const auto keys = static_cast<std::size_t>(problem.kv_len);
  head.bad.assign(keys, 0);
  for (std::size_t c = 0; c < head.k.channels; ++c)
    for (std::size_t j = 0; j < keys; ++j)
      if (!std::isfinite(head.k.high[c * head.k.stride + j])) head.bad[j] = 1;
  position(problem, rotations, 0, rotate, head.k);

  head.v_channels = static_cast<std::size_t>(problem.v_head_dim);
  head.v_stride = padded(problem.v_head_dim);
  head.zero_row = keys;
  double* v = head.v.reserve((keys + 1) * head.v_stride);
  double* unit = head.unit.reserve(head.v_stride);
  double* largest = head.max_abs_v.reserve(head.v_stride);
  std::fill_n(v, (keys + 1) * head.v_stride, 0.0);
  std::fill_n(unit, head.v_stride, 1.0);
  std::fill_n(largest, head.v_stride, 0.0);
  std::vector<double> load(head.v_channels, 0.0);
  for (std::size_t j = 0; j < keys && head.v_channels > 0; ++j) {
    const double* in =
        inputs.v.values.data() + inputs.v.index(b, kv_head, static_cast<std::int64_t>(j), 0);
    const bool real = rows.real_key(static_cast<std::int64_t>(j));
    for (std::size_t c = 0; c < head.v_channels; ++c) {
      v[j * head.v_stride + c] = in[c];
      if (!std::isfinite(in[c])) {
        head.bad[j] = 1;
      } else if (real) {
        largest[c] = std::max(largest[c], std::fabs(in[c]));
        load[c] += std::fabs(in[c]);
      }
    }
  }
  head.any_bad = std::find(head.bad.begin(), head.bad.end(), 1) != head.bad.end();
  head.value_load = 0;
  for (std::size_t c = 0; c < head.v_channels; ++c) {
    head.value_load = std::max(head.value_load, load[c]);
    unit[c] = channel_unit(problem, largest[c]);
    if (unit[c] == 1) continue;
    largest[c] /= unit[c];
    for (std::size_t j = 0; j < keys; ++j) v[j * head.v_stride + c] /= unit[c];
  }
}

void load_queries(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
                  std::int64_t h, std::int64_t first, std::int64_t count,
                  const RotationTable* rotations, RotateFunction rotate, ColumnMajor& q) {
  load_columns(inputs.q, b, h, first, count, kTileRows, q);
  for (std::size_t row = 0; row < q.rows; ++row) {
    q.finite[row] = true;
    for (std::size_t c = 0; c < q.channels; ++c)
      q.finite[row] &= std::isfinite(q.high[c * q.stride + row]);
  }
  position(problem, rotations, static_cast<std::size_t>(first), rotate, q);
  const std::size_t size = q.channels * q.stride;
  double* abs = q.abs.reserve(size);
  double* square = q.square.reserve(size);
  for (std::size_t x = 0; x < size; ++x) abs[x] = std::fabs(q.high[x]);
  for (std::size_t x = 0; x < size; ++x) square[x] = q.high[x] * q.high[x];
  double* norm_square = q.norm_square.reserve(q.pairs * q.stride);
  for (std::size_t x = 0; x < q.pairs * q.stride; ++x) norm_square[x] = q.norm[x] * q.norm[x];
}

}  // namespace attest
