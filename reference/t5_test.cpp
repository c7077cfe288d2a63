// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/definition.hpp"

namespace attest {
namespace {

TEST(T5, DefaultBidirectionalTable) {
  // N = 16, E = 8: distances 0..7 have their own bucket, then 8 buckets grow by 2^(1/2): their
  // first distances are 8 * 2^(t/2) rounded up.
  const std::vector<std::int64_t> first = {8, 12, 16, 23, 32, 46, 64, 91};
  for (std::int64_t n = 0; n <= 300; ++n) {
    std::int64_t bucket = n < 8 ? n : 7;
    if (n >= 8)
      for (std::int64_t start : first) bucket += n >= start;
    EXPECT_EQ(t5_bucket(-n, 32, 128, true), bucket) << n;
    if (n > 0) {
      EXPECT_EQ(t5_bucket(n, 32, 128, true), 16 + bucket) << n;
    }
  }
}

TEST(T5, ExactBoundaries) {
  // 8 ln(64/8)/ln(128/8) = 6 exactly: single precision says 5.99.., and lands one bucket lower.
  EXPECT_EQ(t5_bucket(-63, 32, 128, true), 13);
  EXPECT_EQ(t5_bucket(-64, 32, 128, true), 14);
  EXPECT_EQ(t5_bucket(64, 32, 128, true), 30);
  // Causal: N = 32, E = 16, 16 ln(64/16)/ln(128/16) = 10.67; 32 and 64 are at 16/3 and 32/3.
  EXPECT_EQ(t5_bucket(-32, 32, 128, false), 21);
  EXPECT_EQ(t5_bucket(-64, 32, 128, false), 26);
  EXPECT_EQ(t5_bucket(-127, 32, 128, false), 31);
}

TEST(T5, CausalPutsTheFutureIntoBucketZero) {
  EXPECT_EQ(t5_bucket(5, 32, 128, false), 0);
  EXPECT_EQ(t5_bucket(0, 32, 128, false), 0);
  EXPECT_EQ(t5_bucket(-5, 32, 128, false), 5);
}

TEST(T5, SmallestTables) {
  EXPECT_EQ(t5_bucket(0, 2, 2, false), 0);  // N = 2, E = 1
  EXPECT_EQ(t5_bucket(-1, 2, 2, false), 1);
  EXPECT_EQ(t5_bucket(-1000, 2, 2, false), 1);
  EXPECT_EQ(t5_bucket(-1000, 4, 2, true), 1);
  EXPECT_EQ(t5_bucket(1000, 4, 2, true), 3);
}

/// The largest t with (n/E)^(N-E) >= (max_distance/E)^t, asked one t at a time in 128-bit integers;
/// only for tables small enough not to overflow them.
std::int64_t bucket_by_counting(std::int64_t r, std::int64_t buckets, std::int64_t max_distance,
                                bool bidirectional) {
  __extension__ typedef unsigned __int128 Wide;
  const auto power = [](std::int64_t base, std::int64_t exponent) {
    Wide product = 1;
    while (exponent-- > 0) product *= static_cast<Wide>(base);
    return product;
  };
  const std::int64_t N = bidirectional ? buckets / 2 : buckets;
  const std::int64_t E = N / 2;
  const std::int64_t n = bidirectional ? std::abs(r) : r < 0 ? -r : 0;
  const std::int64_t start = bidirectional && r > 0 ? N : 0;
  if (n < E) return start + n;
  std::int64_t t = 0;
  while (t < N && power(n, N - E) * power(E, t + 1) >= power(max_distance, t + 1) * power(E, N - E))
    ++t;
  return start + std::min(N - 1, E + t);
}

TEST(T5, AgreesWithCountingOnSmallTables) {
  for (const bool bidirectional : {false, true})
    for (std::int64_t buckets = bidirectional ? 4 : 2; buckets <= (bidirectional ? 16 : 9);
         ++buckets)
      for (const std::int64_t max_distance : {9, 10, 20, 64, 128})
        for (std::int64_t r = -150; r <= 150; ++r)
          ASSERT_EQ(t5_bucket(r, buckets, max_distance, bidirectional),
                    bucket_by_counting(r, buckets, max_distance, bidirectional))
              << r << ' ' << buckets << ' ' << max_distance << ' ' << bidirectional;
}

TEST(T5, FollowsTheLogarithmAwayFromBoundaries) {
  for (const std::int64_t buckets : {32, 64, 256, 1024})
    for (const std::int64_t max_distance : {1000, 100'000}) {
      const std::int64_t E = buckets / 2;
      for (std::int64_t n = E; n < max_distance; n = n * 9 / 8 + 1) {
        const double t = std::log(static_cast<double>(n) / static_cast<double>(E)) /
                         std::log(static_cast<double>(max_distance) / static_cast<double>(E)) *
                         static_cast<double>(buckets - E);
        if (std::abs(t - std::round(t)) < 1e-9) continue;
        EXPECT_EQ(t5_bucket(-n, buckets, max_distance, false),
                  E + static_cast<std::int64_t>(std::floor(t)))
            << n << ' ' << buckets << ' ' << max_distance;
      }
    }
}

}  // namespace
}  // namespace attest
