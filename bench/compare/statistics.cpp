// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "harness/data.hpp"

namespace attest {

namespace {

/// The median of as many draws from `values`, with replacement; `scratch` is as long.
double median_of_draws(const std::vector<double>& values, std::uint64_t side, std::uint64_t draw,
                       std::vector<double>& scratch) {
  for (std::size_t i = 0; i < values.size(); ++i)
    scratch[i] = values[mix(draw, side, i, 0, 0, 0) % values.size()];
  return median(scratch);
}

}  // namespace

double median(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(half);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Interval95 bootstrap_ratio(const std::vector<double>& a, const std::vector<double>& b,
                           int resamples) {
  std::vector<double> ratios, of_a(a.size()), of_b(b.size());
  for (int n = 0; n < resamples; ++n) {
    const auto draw = static_cast<std::uint64_t>(n);
    ratios.push_back(median_of_draws(b, 1, draw, of_b) / median_of_draws(a, 0, draw, of_a));
  }
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size() - 1))];
  };
  return {at(0.025), at(0.975)};
}

double rank_test(const std::vector<double>& a, const std::vector<double>& b) {
  struct Ranked {
    double value;
    bool from_b;
  };
  std::vector<Ranked> all;
  for (const double x : a) all.push_back({x, false});
  for (const double x : b) all.push_back({x, true});
  std::sort(all.begin(), all.end(),
            [](const Ranked& left, const Ranked& right) { return left.value < right.value; });

  const auto n_a = static_cast<double>(a.size()), n_b = static_cast<double>(b.size());
  const double n = n_a + n_b;
  double ranks_of_b = 0, ties = 0;  // ties: sum of t^3 - t
  for (std::size_t first = 0; first < all.size();) {
    std::size_t last = first;
    while (last < all.size() && all[last].value == all[first].value) ++last;
    const auto t = static_cast<double>(last - first);
    const double rank = static_cast<double>(first + last + 1) / 2;
    for (std::size_t i = first; i < last; ++i)
      if (all[i].from_b) ranks_of_b += rank;
    ties += t * t * t - t;
    first = last;
  }
  const double u = ranks_of_b - n_b * (n_b + 1) / 2, mean = n_a * n_b / 2;
  const double variance = n_a * n_b / 12 * ((n + 1) - ties / (n * (n - 1)));
  if (!(variance > 0)) return 1;
  const double z = std::max(std::fabs(u - mean) - 0.5, 0.0) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

}  // namespace attest
