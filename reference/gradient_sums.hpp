// SPDX-License-Identifier: Apache-2.0
// What every element of a gradient adds up over its contributions, and the closed forms of
// docs/tolerance.md section 4 that make a tolerance of it. R: double, or long double for f64
// problems, whose 64 digits leave 2^-11 of the tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/expected.hpp"
#include "reference/profile.hpp"
#include "reference/tolerance.hpp"

namespace attest {

/// One number that is added to an element, times a weight: dA_ij to dQ_ic, times k_jc.
template <class R>
struct Contribution {
  R value = 0;
  double mixed = 0;     ///< largest error, all with the same sign
  double variance = 0;  ///< square of the error that is independent of the other contributions'
  double radius = 0;    ///< of the oracle's own value
};

/// The weights of one row, channel by channel.
template <class R>
struct Weights {
  std::vector<R> value;
  std::vector<double> abs;   ///< |value|
  std::vector<double> size;  ///< what its rounding goes with: |value|, or the norm of its RoPE pair

  void resize(std::size_t n) { value.resize(n), abs.resize(n), size.resize(n); }
};

template <class R>
struct GradientSums {
  std::vector<R> value;
  std::vector<double> mixed, magnitude, variance, square, radius;
  std::vector<double> count;         ///< contributions
  std::vector<std::uint8_t> vague;   ///< T_S is T_M
  std::vector<std::uint8_t> spoilt;  ///< a row that is not judged by value has a part in it

  void assign(std::size_t n) {
    value.assign(n, 0);
    for (std::vector<double>* sum : {&mixed, &magnitude, &variance, &square, &radius, &count})
      sum->assign(n, 0);
    vague.assign(n, 0), spoilt.assign(n, 0);
  }

  void add(std::size_t at, const Contribution<R>& x) {
    value[at] += x.value;
    mixed[at] += x.mixed;
    magnitude[at] += std::fabs(static_cast<double>(x.value));
    variance[at] += x.variance;
    square[at] += static_cast<double>(x.value * x.value);
    radius[at] += x.radius;
    count[at] += 1;
  }

  /// add() to `channels` elements from `at` on, each times its weight of row `row`.
  void add_row(std::size_t at, const Contribution<R>& x, const Weights<R>& weights, std::size_t row,
               std::size_t channels) {
    const R* w = weights.value.data() + row * channels;
    const double* abs = weights.abs.data() + row * channels;
    const double* size = weights.size.data() + row * channels;
    const double x_abs = std::fabs(static_cast<double>(x.value)), x_square = x_abs * x_abs;
    for (std::size_t c = 0; c < channels; ++c) value[at + c] += x.value * w[c];
    for (std::size_t c = 0; c < channels; ++c) mixed[at + c] += x.mixed * abs[c];
    for (std::size_t c = 0; c < channels; ++c) magnitude[at + c] += x_abs * size[c];
    for (std::size_t c = 0; c < channels; ++c) variance[at + c] += x.variance * abs[c] * abs[c];
    for (std::size_t c = 0; c < channels; ++c) square[at + c] += x_square * size[c] * size[c];
    for (std::size_t c = 0; c < channels; ++c) radius[at + c] += x.radius * abs[c];
    for (std::size_t c = 0; c < channels; ++c) count[at + c] += 1;
  }
};

/// One element before it is rounded to its type.
template <class R>
struct GradientElement {
  R value = 0;
  double radius = 0, mixed = 0, stat = 0;
};

/// What the terms of a sum cost on top of their own errors.
struct SumRules {
  double kappa = 1;         ///< see docs/tolerance.md 3.3
  double weight_error = 0;  ///< relative error of a weight: RoPE, rounded inputs
  double factor = 1;        ///< |scale|, which stands outside the sum
  double unit = 0;          ///< of R
};

template <class R>
GradientElement<R> element_of(const Arithmetic& a, const SumRules& rules,
                              const GradientSums<R>& sums, std::size_t at, R factor) {
  GradientElement<R> element;
  const double n = sums.count[at], plain = std::fabs(static_cast<double>(sums.value[at]));
  element.value = factor * sums.value[at];
  element.radius =
      rules.factor * 2 * (sums.radius[at] + (n + 8) * rules.unit * (sums.magnitude[at] + plain));
  if (sums.spoilt[at]) element.mixed = element.stat = std::numeric_limits<double>::infinity();
  if (n == 0 || sums.spoilt[at]) return element;
  const double mixed = sums.mixed[at] +
                       (g(a, n + 3, rules.kappa) + rules.weight_error) * sums.magnitude[at] +
                       3 * a.u * plain;
  const double u2 = a.u * a.u * a.profile.c_acc * a.profile.c_acc;
  const double variance = sums.variance[at] +
                          u2 * (n * rules.kappa / 2 + 3) * (plain * plain + sums.square[at]) +
                          rules.weight_error * rules.weight_error * sums.square[at];
  const double lost = 4 * a.profile.eta_acc * (n + 2);
  element.mixed = rules.factor * mixed + lost;
  element.stat = rules.factor * (kLambda * std::sqrt(variance) + 3 * a.u * plain) + lost;
  if (sums.vague[at] || a.worst_case || variance < kSmallestVariance) element.stat = element.mixed;
  return element;
}

/// Rounds to the output's type and writes it down.
template <class R>
void write_element(const GradientElement<R>& element, double u_out, double eta_out,
                   ExpectedTensor& tensor, std::size_t at) {
  const auto high = static_cast<double>(element.value);
  tensor.value[at] = high;
  tensor.low[at] = sizeof(R) > sizeof(double) ? static_cast<double>(element.value - R(high)) : 0;
  tensor.radius[at] = element.radius;
  const auto rounded = [&](double t) {
    return t == 0 ? 0 : t + half_ulp(std::fabs(high) + t, u_out, eta_out);
  };
  tensor.t_mixed[at] = rounded(element.mixed);
  tensor.t_stat[at] = rounded(element.stat);
}

}  // namespace attest
