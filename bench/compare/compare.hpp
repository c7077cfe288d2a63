// SPDX-License-Identifier: Apache-2.0
// Whether a kernel became faster or slower from one record of times to another.
#pragma once

#include <string>
#include <vector>

#include "attest/bench_record.hpp"

namespace attest {

struct CompareOptions {
  double threshold = 0.05;  ///< what is smaller than this is no change
};

/// One name, by its samples. Times are taken at full speed: seconds times the yardstick.
///   slower, faster  the interval of the ratio excludes 1, the rank test agrees (p < 0.05), and the
///                   ratio is beyond the threshold
///   same            the interval lies within the threshold
///   unclear         anything else, or fewer than 5 samples on a side
BenchChange compare_samples(const std::string& name, const std::vector<double>& old_seconds,
                            const std::vector<double>& new_seconds, const CompareOptions& options);

/// Every name that both have, in the order of `new_run`. Dropped samples do not count.
std::vector<BenchChange> compare_runs(const BenchRecord& old_run, const BenchRecord& new_run,
                                      const CompareOptions& options);

/// Seconds of a call at full speed, of the samples of this name that were not dropped.
std::vector<double> seconds_of(const BenchRecord& run, const std::string& name);
/// Names in the order in which they first stand.
std::vector<std::string> names_of(const BenchRecord& run);

}  // namespace attest
