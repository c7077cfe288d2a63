// SPDX-License-Identifier: Apache-2.0
#include "reference/row_kind.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/alibi.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool finite_row(const Dense<double>& tensor, std::int64_t b, std::int64_t h, std::int64_t row) {
  const double* first = tensor.values.data() + tensor.index(b, h, row, 0);
  return std::all_of(first, first + tensor.shape[3], [](double x) { return std::isfinite(x); });
}

}  // namespace

std::vector<std::int64_t> visible_keys(const AttentionProblem& problem,
                                       const AttentionInputs& inputs, const Rows& rows,
                                       std::int64_t b, std::int64_t h, std::int64_t i) {
  std::vector<std::int64_t> keys;
  if (!rows.real_query(i)) return keys;
  const Segment& segment = rows.of_query(i);
  for (std::int64_t j = segment.k0; j < segment.k1; ++j)
    if (visible(problem, inputs, rows, b, h, i, j)) keys.push_back(j);
  return keys;
}

RowKind row_kind(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
                 std::int64_t b, std::int64_t h, std::int64_t i,
                 const std::vector<std::int64_t>& visible) {
  if (!rows.real_query(i)) return RowKind::padding;

  const std::int64_t g = kv_head(problem, h);
  const double sink = sink_at(inputs, h);
  if (std::isnan(sink) || sink == kInfinity) return RowKind::unspecified;
  const bool has_sink = sink != -kInfinity;

  if (!visible.empty()) {
    if (!finite_row(inputs.q, b, h, i)) return RowKind::unspecified;
    if (problem.alibi != AlibiKind::none && !std::isfinite(slope_at(inputs, b, h)))
      return RowKind::unspecified;
  }
  bool any_score = false, any_ordinary_score = false;
  for (const std::int64_t j : visible) {
    if (!finite_row(inputs.k, b, g, j) || !finite_row(inputs.v, b, g, j))
      return RowKind::unspecified;
    const double bias = bias_at(inputs, b, h, i, j);
    if (std::isnan(bias) || bias == kInfinity) return RowKind::unspecified;
    if (bias == -kInfinity) continue;
    any_score = true;
    if (!is_finite_mask(problem.dtype, bias)) any_ordinary_score = true;
  }

  if (!any_score) {
    if (has_sink) return RowKind::empty_sink;
    if (problem.empty_output == EmptyOutput::mean_v)
      for (std::int64_t j = rows.of_query(i).k0; j < rows.of_query(i).k1; ++j)
        if (!finite_row(inputs.v, b, g, j)) return RowKind::unspecified;
    return RowKind::empty;
  }
  return any_ordinary_score || has_sink ? RowKind::ordinary : RowKind::lowest_only;
}

}  // namespace attest
