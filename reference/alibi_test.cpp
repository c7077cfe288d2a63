// SPDX-License-Identifier: Apache-2.0
#include "reference/alibi.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/definition.hpp"

namespace attest {
namespace {

std::vector<double> slopes(std::int64_t num_heads) {
  std::vector<double> all;
  for (std::int64_t h = 0; h < num_heads; ++h) all.push_back(alibi_slope(h, num_heads));
  return all;
}

TEST(Alibi, PowersOfTwoAreAGeometricSequence) {
  EXPECT_EQ(slopes(1), (std::vector<double>{0x1p-8}));
  EXPECT_EQ(slopes(2), (std::vector<double>{0x1p-4, 0x1p-8}));
  EXPECT_EQ(slopes(8),
            (std::vector<double>{0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8}));
}

TEST(Alibi, OtherHeadCountsInterleaveTheNextPower) {
  EXPECT_EQ(slopes(3), (std::vector<double>{0x1p-4, 0x1p-8, 0x1p-2}));
  EXPECT_EQ(slopes(6), (std::vector<double>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3}));
  EXPECT_EQ(slopes(12), (std::vector<double>{0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7,
                                             0x1p-8, 0.70710678118654752440, 0.35355339059327376220,
                                             0.17677669529663688110, 0.088388347648318440550}));
}

TEST(Alibi, TheRestIsEveryOtherSlopeOfTwiceThePower) {
  // The recipe of the paper's code, for every head count: slopes(n), then slopes(2n)[0::2].
  for (std::int64_t num_heads = 1; num_heads <= 130; ++num_heads) {
    std::int64_t n = 1;
    while (2 * n <= num_heads) n *= 2;
    std::vector<double> expected = slopes(n);
    const std::vector<double> finer = slopes(2 * n);
    for (std::int64_t h = n; h < num_heads; ++h)
      expected.push_back(finer[static_cast<std::size_t>(2 * (h - n))]);
    EXPECT_EQ(slopes(num_heads), expected) << num_heads;
  }
}

TEST(Alibi, TermsOfEachKind) {
  EXPECT_EQ(alibi_term<double>(AlibiKind::absolute, 0.5, 7, 4), -1.5);
  EXPECT_EQ(alibi_term<double>(AlibiKind::absolute, 0.5, 4, 7), -1.5);
  EXPECT_EQ(alibi_term<double>(AlibiKind::signed_, 0.5, 7, 4), -1.5);
  EXPECT_EQ(alibi_term<double>(AlibiKind::signed_, 0.5, 4, 7), 1.5);
  EXPECT_EQ(alibi_term<double>(AlibiKind::key_anchored, 0.5, 4, 7), 3.5);
  EXPECT_EQ(alibi_term<double>(AlibiKind::none, 0.5, 4, 7), 0);
}

}  // namespace
}  // namespace attest
