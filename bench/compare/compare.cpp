// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "bench/compare/statistics.hpp"

namespace attest {

namespace {

constexpr std::int64_t kLeastSamples = 5;
constexpr double kSignificant = 0.05;

/// An interval shrinks with the root of the samples. What it must be smaller than for a verdict:
/// the distance to 1 of a ratio beyond the threshold, the distance to the threshold of one within.
std::int64_t samples_to_settle(const BenchChange& change, double threshold) {
  const double half = (change.high - change.low) / 2;
  const double distance = std::fabs(change.ratio - 1);
  const double room = distance > threshold ? distance : threshold - distance;
  const auto samples = static_cast<double>(std::min(change.old_samples, change.new_samples));
  const double needed = std::ceil(samples * (half / room) * (half / room));
  return needed < 1e6 ? std::max(static_cast<std::int64_t>(needed), kLeastSamples) : 0;
}

}  // namespace

BenchChange compare_samples(const std::string& name, const std::vector<double>& old_seconds,
                            const std::vector<double>& new_seconds, const CompareOptions& options) {
  BenchChange change;
  change.name = name;
  change.old_samples = static_cast<std::int64_t>(old_seconds.size());
  change.new_samples = static_cast<std::int64_t>(new_seconds.size());
  if (old_seconds.empty() || new_seconds.empty()) {
    change.samples_needed = kLeastSamples;
    return change;
  }
  change.old_seconds = median(old_seconds);
  change.new_seconds = median(new_seconds);
  change.ratio = change.new_seconds / change.old_seconds;
  const Interval95 interval = bootstrap_ratio(old_seconds, new_seconds);
  change.low = interval.low, change.high = interval.high;
  change.p_value = rank_test(old_seconds, new_seconds);

  const bool enough = std::min(change.old_samples, change.new_samples) >= kLeastSamples;
  const double most = 1 + options.threshold;
  const bool significant = enough && change.p_value < kSignificant;
  if (significant && change.low > 1 && change.ratio > most)
    change.change = Change::slower;
  else if (significant && change.high < 1 && change.ratio < 1 / most)
    change.change = Change::faster;
  else if (enough && change.low > 1 / most && change.high < most)
    change.change = Change::same;
  else
    change.samples_needed = samples_to_settle(change, options.threshold);
  return change;
}

std::vector<double> seconds_of(const BenchRecord& run, const std::string& name) {
  for (BenchSeries& series : series_of(run))
    if (series.sample->name == name) return std::move(series.seconds);
  return {};
}

std::vector<std::string> names_of(const BenchRecord& run) {
  std::vector<std::string> names;
  for (const BenchSeries& series : series_of(run)) names.push_back(series.sample->name);
  return names;
}

std::vector<BenchChange> compare_runs(const BenchRecord& old_run, const BenchRecord& new_run,
                                      const CompareOptions& options) {
  std::map<std::string, std::vector<double>> known;
  for (BenchSeries& series : series_of(old_run))
    known[series.sample->name] = std::move(series.seconds);
  std::vector<BenchChange> changes;
  for (const BenchSeries& series : series_of(new_run)) {
    const std::string& name = series.sample->name;
    if (const auto old_seconds = known.find(name); old_seconds != known.end())
      changes.push_back(compare_samples(name, old_seconds->second, series.seconds, options));
  }
  return changes;
}

}  // namespace attest
