// SPDX-License-Identifier: Apache-2.0
// What two sets of times say of each other.
#pragma once

#include <cstdint>
#include <vector>

namespace attest {

/// The middle one, or the mean of the two in the middle; `values` is not empty.
double median(std::vector<double> values);

struct Interval95 {
  double low = 0, high = 0;
};

/// Percentile bootstrap (Efron 1979) of median(b) / median(a), `resamples` draws of each with
/// replacement. The same input gives the same interval.
Interval95 bootstrap_ratio(const std::vector<double>& a, const std::vector<double>& b,
                           int resamples = 4000);

/// Two-sided p-value of the Mann-Whitney U test (Mann and Whitney 1947): whether values of one set
/// tend to be larger. Normal approximation with ties corrected and a step of continuity; 1 where a
/// set is empty or all values are equal.
double rank_test(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attest
