// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/compare/statistics.hpp"
#include "harness/data.hpp"

namespace attest {
namespace {

/// Times around `center` as a busy machine has them: 2 % of noise, and one in eight up to a third
/// slower.
std::vector<double> times(std::uint64_t seed, int count, double center) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    const auto uniform = [&](std::uint64_t which) {
      return static_cast<double>(mix(seed, which, static_cast<std::uint64_t>(i), 0, 0, 0) >> 11) *
             0x1p-53;
    };
    double noise = 0;
    for (std::uint64_t n = 0; n < 12; ++n) noise += uniform(n);
    const double stolen = uniform(20) < 0.125 ? uniform(21) / 3 : 0;
    values.push_back(center * (1 + 0.02 * (noise - 6) + stolen));
  }
  return values;
}

int count(Change change, double ratio, int samples, int pairs) {
  int seen = 0;
  for (int n = 0; n < pairs; ++n) {
    const auto seed = static_cast<std::uint64_t>(n);
    seen += compare_samples("x", times(2 * seed, samples, 1e-3),
                            times(2 * seed + 1, samples, ratio * 1e-3), {})
                .change == change;
  }
  return seen;
}

TEST(Compare, CallsTheSameBuildTheSame) {
  EXPECT_GE(count(Change::same, 1, 20, 200), 190);
  EXPECT_LE(count(Change::slower, 1, 20, 200) + count(Change::faster, 1, 20, 200), 0);
}

TEST(Compare, CallsTenPercentSlowerSlower) {
  EXPECT_GE(count(Change::slower, 1.1, 20, 200), 190);
  EXPECT_GE(count(Change::faster, 1 / 1.1, 20, 200), 190);
}

TEST(Compare, SaysHowManySamplesWouldSettleIt) {
  const BenchChange few = compare_samples("x", times(1, 4, 1), times(2, 4, 1), {});
  EXPECT_EQ(few.change, Change::unclear);
  EXPECT_GE(few.samples_needed, 5);
  // Within the threshold, but the interval reaches beyond it.
  const std::vector<double> old_times{0.97, 0.98, 0.99, 1.01, 1.02, 1.03};
  std::vector<double> new_times = old_times;
  for (double& x : new_times) x *= 1.035;
  const BenchChange close = compare_samples("x", old_times, new_times, {});
  EXPECT_EQ(close.change, Change::unclear);
  EXPECT_GT(close.samples_needed, 6);
  EXPECT_LT(close.samples_needed, 200);
  const BenchChange none = compare_samples("x", {}, times(1, 9, 1), {});
  EXPECT_EQ(none.change, Change::unclear);
  EXPECT_EQ(none.samples_needed, 5);
}

TEST(Compare, CountsWhatWasNotDroppedAtFullSpeed) {
  BenchRecord run;
  for (int i = 0; i < 6; ++i) {
    BenchSample sample;
    sample.name = i < 5 ? "naive/a" : "naive/b";
    sample.real_time = 2000;
    sample.yardstick = 0.95;
    sample.dropped = i == 0;
    run.benchmarks.push_back(sample);
  }
  EXPECT_EQ(seconds_of(run, "naive/a"), std::vector<double>(4, 2000 * 1e-9 * 0.95));
  EXPECT_EQ(names_of(run), (std::vector<std::string>{"naive/a", "naive/b"}));
  BenchRecord other = run;
  other.benchmarks.pop_back();
  const auto changes = compare_runs(run, other, {});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].name, "naive/a");
  EXPECT_EQ(changes[0].ratio, 1);
}

TEST(Statistics, Median) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

/// U = 0 of 5 and 5: z = (12.5 - 0.5) / sqrt(275 / 12) = 2.5067, p = 0.01219. With ties by hand:
/// the ranks of {2, 3, 3, 4} are 3, 6, 6, 8, so U = 13 about a mean of 8, and two groups of 3 are
/// equal.
TEST(Statistics, RankTest) {
  EXPECT_NEAR(rank_test({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}), 0.012186, 1e-6);
  EXPECT_EQ(rank_test({6, 7, 8, 9, 10}, {1, 2, 3, 4, 5}),
            rank_test({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}));
  EXPECT_EQ(rank_test({1, 1, 1}, {1, 1, 1}), 1);
  EXPECT_EQ(rank_test({}, {1, 2}), 1);
  EXPECT_NEAR(rank_test({1, 2, 2, 3}, {2, 3, 3, 4}),
              std::erfc((13 - 8 - 0.5) / std::sqrt(16.0 / 12 * (9 - 48.0 / 56)) / std::sqrt(2.0)),
              1e-12);
}

TEST(Statistics, BootstrapCoversTheRatioNineteenTimesInTwenty) {
  int covered = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const Interval95 interval =
        bootstrap_ratio(times(1000 + 2 * n, 25, 1), times(1001 + 2 * n, 25, 1.2), 500);
    covered += interval.low <= 1.2 && interval.high >= 1.2;
  }
  EXPECT_GE(covered, 184);
  EXPECT_LE(covered, 200);
}

}  // namespace
}  // namespace attest
