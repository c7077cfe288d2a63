// SPDX-License-Identifier: Apache-2.0
#include "reference/rope_alone.hpp"

#include <algorithm>
#include <cmath>

#include "reference/definition.hpp"
#include "reference/head.hpp"
#include "reference/profile.hpp"

namespace attest {
namespace {

struct Sum {
  double high = 0, low = 0;
};

/// x c + y s for c and s of two doubles each. Dekker and Knuth: products and the sum are exact in
/// two parts, and the lower parts are rounded to 2^-53 of 2^-53.
Sum combine(double x, double c, double c_low, double y, double s, double s_low) {
  const double xc = x * c, ys = y * s;
  const double sum = xc + ys;
  const double part = sum - xc;
  const double sum_error = (xc - (sum - part)) + (ys - part);
  const double low = (std::fma(x, c, -xc) + x * c_low) + (std::fma(y, s, -ys) + y * s_low);
  const double all = low + sum_error;
  const double high = sum + all;
  return {high, all - (high - sum)};
}

struct Writer {
  const Arithmetic& arithmetic;
  bool pairs;  ///< of doubles
  ExpectedTensor& y;

  /// `down` takes the value and the terms back from where they were scaled to.
  void turned(std::size_t flat, Sum scaled, double scaled_terms, double down) const {
    const double terms = scaled_terms * down;
    Sum value{scaled.high * down, 0};
    value.low = (scaled.high - value.high / down + scaled.low) * down;
    const PrecisionProfile& profile = arithmetic.profile;
    const double exact = std::fabs(value.high);
    y.value[flat] = pairs ? value.high : value.high + value.low;
    y.low[flat] = pairs ? value.low : 0;
    // Narrow problems: cos and sin to 2^-54, two products and a sum to 2^-53 of the terms.
    y.radius[flat] = (pairs ? 0x1p-100 : 0x1p-51) * terms + 0x1p-1074;
    const double pre = 1.5 * arithmetic.u_rope * terms + 4 * profile.eta_acc;
    y.t_mixed[flat] = pre + half_ulp(exact + pre, profile.u_out, profile.eta_out);
    y.t_stat[flat] = y.t_mixed[flat];
  }
};

}  // namespace

Expected expect_rope(const AttentionProblem& problem, const AttentionInputs& inputs,
                     const PrecisionProfile& profile) {
  const Arithmetic arithmetic = arithmetic_of(problem, profile);
  const auto rows = static_cast<std::size_t>(problem.batch * problem.num_heads * problem.q_len);
  const auto channels = static_cast<std::size_t>(problem.head_dim);
  Expected expected;
  expected.has_tolerance = true;
  expected.rows.assign(rows, RowKind::ordinary);
  ExpectedTensor& y = expected.o;
  y.value = inputs.q.values;
  for (auto* values : {&y.low, &y.radius, &y.t_mixed, &y.t_stat})
    values->assign(rows * channels, 0.0);
  const Writer writer{arithmetic, problem.dtype == DType::f64, y};
  const double direction = problem.rope_inverse ? -1 : 1;

  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t i = 0; i < problem.q_len; ++i) {
      const std::vector<RopeAngle> angles = rope_angles(problem, row_position(problem, b, i));
      for (std::int64_t h = 0; h < problem.num_heads; ++h) {
        const auto row = static_cast<std::size_t>((b * problem.num_heads + h) * problem.q_len + i);
        const double* x = inputs.q.values.data() + row * channels;
        bool finite = true;
        for (std::size_t c = 0; c < channels; ++c) finite = finite && std::isfinite(x[c]);
        for (std::size_t t = 0; t < angles.size() && finite; ++t) {
          const RopeAngle& angle = angles[t];
          const std::size_t first = first_of_pair(problem.rope, t),
                            second = second_of_pair(problem.rope, angles.size(), t);
          // Products of small numbers would underflow.
          const bool small = std::max(std::fabs(x[first]), std::fabs(x[second])) < 0x1p-500;
          const double up = small ? 0x1p600 : 1, u = up * x[first], v = up * x[second];
          const double cos = angle.cos_high, cos_low = angle.cos_low;
          const double sin = direction * angle.sin_high, sin_low = direction * angle.sin_low;
          writer.turned(row * channels + first, combine(u, cos, cos_low, -v, sin, sin_low),
                        std::fabs(u * cos) + std::fabs(v * sin), 1 / up);
          writer.turned(row * channels + second, combine(u, sin, sin_low, v, cos, cos_low),
                        std::fabs(u * sin) + std::fabs(v * cos), 1 / up);
          finite = std::isfinite(y.value[row * channels + first]) &&
                   std::isfinite(y.value[row * channels + second]);
        }
        if (!finite) expected.rows[row] = RowKind::unspecified;
      }
    }
  return expected;
}

}  // namespace attest
