// SPDX-License-Identifier: Apache-2.0
#include "reference/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/definition.hpp"
#include "reference/multiprecision.hpp"

namespace attest {
namespace {

AttentionProblem with_rope(std::int64_t dim, double base = 10000, double scale = 1,
                           double ntk = 1) {
  AttentionProblem p;
  p.head_dim = p.rope_dim = dim;
  p.rope = RopePairing::half;
  p.rope_base = base;
  p.rope_scale = scale;
  p.rope_ntk = ntk;
  return p;
}

TEST(Rope, FirstPairTurnsByThePosition) {
  // t = 0: theta = pos, whatever base and R. cos 1 and sin 1 to 32 digits as two doubles.
  const RopeAngle angle = rope_angle(with_rope(64), 1, 0);
  EXPECT_EQ(angle.cos_high, 0x1.14a280fb5068cp-1);
  EXPECT_EQ(angle.cos_low, -0x1.b71edcc9344bcp-55);
  EXPECT_EQ(angle.sin_high, 0x1.aed548f090ceep-1);
  EXPECT_EQ(angle.sin_low, 0x1.06374f484e288p-59);
}

TEST(Rope, LaterPairsTurnSlower) {
  // R = 4, base 100: theta_1 = pos / 10, so position 10 of pair 1 equals position 1 of pair 0, but
  // for the rounding of the base's root, which is exact here.
  const AttentionProblem p = with_rope(4, 100);
  EXPECT_EQ(rope_angle(p, 10, 1).cos_high, rope_angle(p, 1, 0).cos_high);
  EXPECT_EQ(rope_angle(p, 10, 1).sin_high, rope_angle(p, 1, 0).sin_high);
}

TEST(Rope, LinearScalingDividesPositions) {
  const AttentionProblem plain = with_rope(8), scaled = with_rope(8, 10000, 4);
  for (std::int64_t t = 0; t < 4; ++t) {
    EXPECT_EQ(rope_angle(scaled, 12, t).cos_high, rope_angle(plain, 3, t).cos_high);
    EXPECT_EQ(rope_angle(scaled, -12, t).sin_high, rope_angle(plain, -3, t).sin_high);
  }
}

TEST(Rope, NtkRaisesTheBase) {
  // R = 4: base' = base s^(4/2), 100 * 3^2 = 900.
  const AttentionProblem ntk = with_rope(4, 100, 1, 3), raised = with_rope(4, 900);
  EXPECT_EQ(rope_angle(ntk, 7, 1).sin_high, rope_angle(raised, 7, 1).sin_high);
  EXPECT_EQ(rope_angle(ntk, 7, 0).sin_high, rope_angle(raised, 7, 0).sin_high);
}

TEST(Rope, AnglesFollowTheFormula) {
  // libm in long double from the formula: 2^-64, so doubles must agree to an ulp or two.
  const AttentionProblem p = with_rope(64);
  for (const std::int64_t position : {-70, -33, -32, -1, 0, 1, 31, 32, 63, 64, 1000, 4095}) {
    const std::vector<RopeAngle> angles = rope_angles(p, position);
    ASSERT_EQ(angles.size(), 32u);
    for (std::int64_t t = 0; t < 32; ++t) {
      const long double theta = static_cast<long double>(position) *
                                std::pow(10000.0L, -2.0L * static_cast<long double>(t) / 64);
      const RopeAngle one = rope_angle(p, position, t);
      EXPECT_NEAR(one.cos_high, static_cast<double>(std::cos(theta)), 1e-15) << position;
      EXPECT_NEAR(one.sin_high, static_cast<double>(std::sin(theta)), 1e-15) << position;
      EXPECT_EQ(angles[static_cast<std::size_t>(t)].cos_high, one.cos_high);
      EXPECT_EQ(angles[static_cast<std::size_t>(t)].sin_low, one.sin_low);
    }
  }
}

TEST(Rope, CosineAndSineAreOnTheUnitCircle) {
  // cos^2 + sin^2 - 1 in exact products of doubles: below 2^-100.
  const AttentionProblem p = with_rope(16, 500000, 2, 1.5);
  for (std::int64_t position = -100; position < 2000; position += 7)
    for (std::int64_t t = 0; t < 8; ++t) {
      const RopeAngle a = rope_angle(p, position, t);
      const double c2 = a.cos_high * a.cos_high, s2 = a.sin_high * a.sin_high;
      const double c2_low = std::fma(a.cos_high, a.cos_high, -c2) + 2 * a.cos_high * a.cos_low;
      const double s2_low = std::fma(a.sin_high, a.sin_high, -s2) + 2 * a.sin_high * a.sin_low;
      const double big = std::max(c2, s2), small = std::min(c2, s2);
      const double sum = big + small, lost = small - (sum - big);
      EXPECT_LT(std::abs((sum - 1) + (lost + (c2_low + s2_low))), 0x1p-100) << position << ' ' << t;
    }
}

TEST(Rope, EveryCosineAndSineIsGoodTo101Bits) {
  // Of itself, also where it is all but 0: 710 radians are 226 half turns and 0.00006.
  for (const AttentionProblem& p : {with_rope(16), with_rope(26, 500000, 2, 1.5)})
    for (const std::int64_t position :
         {std::int64_t{-131073}, std::int64_t{-33}, std::int64_t{-1}, std::int64_t{0},
          std::int64_t{1}, std::int64_t{31}, std::int64_t{32}, std::int64_t{355}, std::int64_t{710},
          std::int64_t{12345}, std::int64_t{131071}, (std::int64_t{1} << 31) - 1,
          std::int64_t{1} << 40}) {
      const auto exact = rotations(rope_frequencies<Mpfr100>(rope_parameters(p)), position);
      const auto error = [](double high, double low, const Mpfr100& wanted) {
        const Mpfr100 off = abs(Mpfr100(high) + Mpfr100(low) - wanted);
        return off == 0 ? 0 : static_cast<double>(Mpfr100(off / abs(wanted)));
      };
      for (std::size_t t = 0; t < exact.size(); ++t) {
        const RopeAngle angle = rope_angle(p, position, static_cast<std::int64_t>(t));
        EXPECT_LT(error(angle.cos_high, angle.cos_low, exact[t].cos), 0x1p-101) << position;
        EXPECT_LT(error(angle.sin_high, angle.sin_low, exact[t].sin), 0x1p-101) << position;
      }
    }
}

TEST(Rope, ManyPositionsDoNotExhaustTheCache) {
  const AttentionProblem p = with_rope(128);
  const double first = rope_angle(p, 5, 3).cos_high;
  for (std::int64_t position = 0; position < 80'000; position += 32) rope_angle(p, position, 0);
  EXPECT_EQ(rope_angle(p, 5, 3).cos_high, first);
}

TEST(Rope, PairingsPairAndLeaveTheRestAlone) {
  const std::vector<Rotation<double>> quarter = {{0, 1}, {0, 1}};  // (x, y) -> (-y, x)
  std::vector<double> row = {1, 2, 3, 4, 5};
  rotate(row, RopePairing::interleaved, quarter);
  EXPECT_EQ(row, (std::vector<double>{-2, 1, -4, 3, 5}));
  row = {1, 2, 3, 4, 5};
  rotate(row, RopePairing::half, quarter);
  EXPECT_EQ(row, (std::vector<double>{-3, -4, 1, 2, 5}));
}

TEST(Rope, RotationKeepsNorms) {
  const RopeParameters rope{6, 10000, 1, 1};
  std::vector<double> row = {1, -2, 0.5, 3, -1, 4};
  rotate(row, RopePairing::half, rotations(rope_frequencies<double>(rope), 17));
  double norm = 0;
  for (double x : row) norm += x * x;
  EXPECT_NEAR(norm, 1 + 4 + 0.25 + 9 + 1 + 16, 1e-13);
}

}  // namespace
}  // namespace attest
