// SPDX-License-Identifier: Apache-2.0
// Rows that the softmax does not reach.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/alibi.hpp"
#include "reference/attention_fast.hpp"
#include "reference/row_kind.hpp"
#include "reference/tolerance.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void set_element(ExpectedTensor& tensor, std::size_t at, double value, double tolerance) {
  tensor.value[at] = value;
  tensor.radius[at] = 0;
  tensor.t_mixed[at] = tensor.t_stat[at] = tolerance;
}

void set_o(const OracleCall& call, const RowPlace& place, double value, double tolerance,
           Expected& expected) {
  const auto channels = static_cast<std::size_t>(call.problem.v_head_dim);
  for (std::size_t c = 0; c < channels; ++c)
    set_element(expected.o, place.index * channels + c, value, tolerance);
}

/// The mean of v over the real keys of the row's segment, in double.
void set_mean(const OracleCall& call, const Segment& segment, const RowPlace& place,
              Expected& expected) {
  const std::int64_t g = kv_head(call.problem, place.h);
  const auto channels = static_cast<std::size_t>(call.problem.v_head_dim);
  const auto n = static_cast<double>(segment.k1 - segment.k0);
  for (std::size_t c = 0; c < channels; ++c) {
    long double sum = 0, abs_sum = 0;
    for (std::int64_t j = segment.k0; j < segment.k1; ++j) {
      const double v = call.inputs.v.at(place.b, g, j, static_cast<std::int64_t>(c));
      sum += v;
      abs_sum += std::fabs(v);
    }
    const std::size_t at = place.index * channels + c;
    if (n == 0) {
      set_element(expected.o, at, 0, 0);
      continue;
    }
    const auto mean = static_cast<double>(sum / n);
    const auto abs_mean = static_cast<double>(abs_sum / n);
    set_element(expected.o, at, mean, tolerance_mean(call.arithmetic, n, abs_mean));
    expected.o.low[at] = call.problem.dtype == DType::f64
                             ? static_cast<double>(sum / n - static_cast<long double>(mean))
                             : 0;
    expected.o.radius[at] = call.problem.dtype == DType::f64
                                ? 2 * (n + 2) * 0x1p-64 * abs_mean + 0x1p-1074
                                : std::fabs(mean) * 0x1p-52 + 2 * (n + 2) * 0x1p-64 * abs_mean;
  }
}

/// |lse| of a row that has finite mask values on every key, but for the scores they absorb.
double lowest_score(const RowScores& row) {
  double largest = 0;
  for (std::size_t x = 0; x < row.n; ++x) largest = std::max(largest, std::fabs(row.bias[x]));
  return largest;
}

}  // namespace

RowKind collect_keys(const OracleCall& call, const Rows& rows, const RowPlace& place,
                     bool query_is_finite, Workspace& work) {
  const AttentionProblem& problem = call.problem;
  const AttentionInputs& inputs = call.inputs;
  RowScores& row = work.row;
  row.n = 0;
  row.hidden_by_bias = false;
  if (!rows.real_query(place.i)) return RowKind::padding;
  const double sink = sink_at(inputs, place.h);
  if (std::isnan(sink) || sink == kInfinity) return RowKind::unspecified;
  row.has_sink = sink != -kInfinity;
  row.sink = row.has_sink ? sink : 0;

  const Segment& segment = rows.of_query(place.i);
  const bool all_visible = problem.base == Base::full && problem.window_left < 0 &&
                           problem.window_right < 0 && !inputs.mask.present &&
                           !inputs.blocks.present;
  bool any_visible = false, bad = false, any_ordinary = false;
  for (std::int64_t j = segment.k0; j < segment.k1; ++j) {
    if (!all_visible && !visible(problem, inputs, rows, place.b, place.h, place.i, j)) continue;
    any_visible = true;
    bad |= work.head.bad[static_cast<std::size_t>(j)] != 0;
    if (inputs.bias.present) {
      const double bias = bias_at(inputs, place.b, place.h, place.i, j);
      if (bias == -kInfinity) {
        row.hidden_by_bias = true;
        continue;
      }
      bad |= !std::isfinite(bias);
      any_ordinary |= !is_finite_mask(problem.dtype, bias);
      row.bias[row.n] = bias;
    }
    row.key[row.n] = static_cast<std::int32_t>(j);
    ++row.n;
  }
  if (any_visible) {
    const bool bad_slope =
        problem.alibi != AlibiKind::none && !std::isfinite(slope_at(inputs, place.b, place.h));
    if (bad || bad_slope || !query_is_finite) return RowKind::unspecified;
  }
  if (row.n == 0) {
    if (row.has_sink) return RowKind::empty_sink;
    if (problem.empty_output == EmptyOutput::mean_v)
      for (std::int64_t j = segment.k0; j < segment.k1; ++j)
        for (std::int64_t c = 0; c < problem.v_head_dim; ++c)
          if (!std::isfinite(inputs.v.at(place.b, kv_head(problem, place.h), j, c)))
            return RowKind::unspecified;
    return RowKind::empty;
  }
  for (std::size_t x = 0; x < row.n; ++x) {
    const bool dropped =
        inputs.keep.present && inputs.keep.at(place.b, place.h, place.i, row.key[x]) == 0;
    row.value[x] = dropped ? static_cast<std::int32_t>(work.head.zero_row) : row.key[x];
  }
  return any_ordinary || !inputs.bias.present || row.has_sink ? RowKind::ordinary
                                                              : RowKind::lowest_only;
}

void write_padding(const OracleCall& call, const RowPlace& place, Expected& expected) {
  set_o(call, place, 0, 0, expected);
  set_element(expected.lse, place.index, -kInfinity, 0);
}

void write_empty(const OracleCall& call, const Rows& rows, const RowPlace& place,
                 Expected& expected) {
  switch (call.problem.empty_output) {
    case EmptyOutput::zero: set_o(call, place, 0, 0, expected); break;
    case EmptyOutput::nan: set_o(call, place, std::nan(""), 0, expected); break;
    case EmptyOutput::mean_v: set_mean(call, rows.of_query(place.i), place, expected); break;
    case EmptyOutput::unspecified: set_o(call, place, 0, kInfinity, expected); break;
  }
  switch (call.problem.empty_lse) {
    case EmptyLse::neg_inf: set_element(expected.lse, place.index, -kInfinity, 0); break;
    case EmptyLse::pos_inf: set_element(expected.lse, place.index, kInfinity, 0); break;
    case EmptyLse::zero: set_element(expected.lse, place.index, 0, 0); break;
    case EmptyLse::unspecified: set_element(expected.lse, place.index, 0, kInfinity); break;
  }
}

void write_empty_sink(const OracleCall& call, const RowPlace& place, Expected& expected) {
  set_o(call, place, 0, 0, expected);
  const double sink = sink_at(call.inputs, place.h);
  set_element(expected.lse, place.index, sink, tolerance_lse_sink(call.arithmetic, sink));
}

void write_unjudged(const OracleCall& call, const RowPlace& place, Expected& expected) {
  const auto channels = static_cast<std::size_t>(call.problem.v_head_dim);
  set_o(call, place, std::nan(""), kInfinity, expected);
  for (std::size_t c = 0; c < channels; ++c)
    expected.o.radius[place.index * channels + c] = kInfinity;
  set_element(expected.lse, place.index, std::nan(""), kInfinity);
  expected.lse.radius[place.index] = kInfinity;
}

void write_lowest_only(const OracleCall& call, const RowPlace& place, const Workspace& work,
                       Expected& expected) {
  write_unjudged(call, place, expected);
  const Arithmetic& arithmetic = call.arithmetic;
  const PrecisionProfile& profile = arithmetic.profile;
  const auto channels = static_cast<std::size_t>(call.problem.v_head_dim);
  const std::size_t size = expected.o.value.size();
  if (expected.o_low.empty()) {
    expected.o_low.assign(size, -kInfinity);
    expected.o_high.assign(size, kInfinity);
  }
  const double n = static_cast<double>(work.row.n);
  // A rounded lse is never below that of a part, so that merged weights are at most 1 each.
  const double weights = g(arithmetic, n + 2, n) + 4 * arithmetic.u + profile.u_p + profile.u_in +
                         profile.e_exp + arithmetic.keep_error +
                         std::min(merge_error(arithmetic, n, lowest_score(work.row)), n - 1);
  for (std::size_t c = 0; c < channels; ++c) {
    const double factor = arithmetic.keep_factor * work.head.unit[c];
    double low = kInfinity, high = -kInfinity;
    for (std::size_t x = 0; x < work.row.n; ++x) {
      const double v = factor * work.head.v_row(work.row.value[x])[c];
      low = std::min(low, v), high = std::max(high, v);
    }
    const double largest = std::max(std::fabs(low), std::fabs(high));
    const double slack = weights * largest + profile.eta_in * arithmetic.keep_factor +
                         half_ulp(largest, profile.u_out, profile.eta_out);
    expected.o_low[place.index * channels + c] = low - slack;
    expected.o_high[place.index * channels + c] = high + slack;
  }
}

}  // namespace attest
