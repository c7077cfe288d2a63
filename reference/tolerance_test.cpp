// SPDX-License-Identifier: Apache-2.0
// The constants, the groups and single tolerances worked out by hand.
#include "reference/tolerance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/expected.hpp"
#include "reference/groups.hpp"
#include "reference/row_terms.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

constexpr double kU = 0x1p-24;

TEST(Profile, AccumulationIsLinearThenAsTheSquareRoot) {
  AttentionProblem problem;
  PrecisionProfile profile;
  Arithmetic arithmetic = arithmetic_of(problem, profile);
  EXPECT_EQ(g(arithmetic, 9), 9 * kU);
  EXPECT_EQ(g(arithmetic, 16), 16 * kU);
  EXPECT_EQ(g(arithmetic, 100), 40 * kU);
  EXPECT_EQ(g(arithmetic, 100, 4), 80 * kU);
  EXPECT_EQ(g(arithmetic, 100, 100), 100 * kU);
  profile.c_acc = 2;
  arithmetic = arithmetic_of(problem, profile);
  EXPECT_EQ(g(arithmetic, 100), 200 * kU);
}

TEST(Profile, HalfUlpIsThatOfTheBinade) {
  EXPECT_EQ(half_ulp(1, kU, 0), kU);
  EXPECT_EQ(half_ulp(1.999, kU, 0), kU);
  EXPECT_EQ(half_ulp(2, kU, 0), 2 * kU);
  EXPECT_EQ(half_ulp(0.75, 0x1p-8, 0), 0x1p-9);
  EXPECT_EQ(half_ulp(0, kU, 0x1p-150), 0x1p-150);
  EXPECT_EQ(half_ulp(0x1p-140, kU, 0x1p-150), 0x1p-150);
  EXPECT_EQ(half_ulp(0x1p-1060, 0x1p-53, 0x1p-1074), 0x1p-1074);
  EXPECT_EQ(half_ulp(std::numeric_limits<double>::infinity(), kU, 0),
            std::numeric_limits<double>::infinity());
}

TEST(Profile, AKernelThatIsSilentOnRopeRoundsThere) {
  AttentionProblem problem;
  EXPECT_EQ(arithmetic_of(problem, {}).u_rope, 0);
  problem.rope = RopePairing::half;
  EXPECT_EQ(arithmetic_of(problem, {}).u_rope, 2 * kU);
  PrecisionProfile loose;
  loose.u_rope = 0x1p-8;
  EXPECT_EQ(arithmetic_of(problem, loose).u_rope, 0x1p-8);
}

TEST(Profile, TheDropoutFactorIsKnownToItsCondition) {
  AttentionProblem problem;
  problem.dropout_p = 0.75;
  const Arithmetic arithmetic = arithmetic_of(problem, {});
  EXPECT_EQ(arithmetic.keep_factor, 4);
  EXPECT_EQ(arithmetic.keep_error, 5 * kU);  // p F + 2
}

/// One visible key: o = v exactly, so neither weights nor scores can move it.
TEST(Tolerance, OneKeyLeavesTheAccumulations) {
  AttentionProblem problem;
  const PrecisionProfile profile;
  AttentionInputs inputs = testing_support::random_inputs(problem, 1);
  inputs.q.values = {1.5};
  inputs.k.values = {-0.5};
  inputs.v.values = {1};
  const Expected expected = expect(problem, inputs, profile);
  EXPECT_EQ(expected.o.value[0], 1);
  EXPECT_EQ(expected.o.radius[0] < 1e-14, true);
  // g(3) X + g(3)|o| + 3u|o| with n_c = n_l = 1, the underflow of three operations, hu(1).
  EXPECT_DOUBLE_EQ(expected.o.t_mixed[0], (3 + 3 + 3) * kU + 4 * 3 * 0x1p-149 + kU);
}

TEST(Tolerance, AZeroChannelMayOnlyUnderflow) {
  AttentionProblem problem;
  problem.kv_len = 2;
  AttentionInputs inputs = testing_support::random_inputs(problem, 1);
  inputs.v.values = {0, 0};
  const Expected expected = expect(problem, inputs, {});
  EXPECT_EQ(expected.o.value[0], 0);
  EXPECT_EQ(expected.o.radius[0], 0);
  EXPECT_EQ(expected.o.t_mixed[0], 4 * 4 * 0x1p-149 + 0x1p-150);
}

RowScores row_with(const std::vector<double>& z) {
  RowScores row;
  row.n = z.size();
  row.reserve(z.size());
  row.m = *std::max_element(z.begin(), z.end());
  double l = 0;
  for (const double x : z) l += std::exp(x - row.m);
  row.l = l;
  row.lse = row.m + std::log(l);
  for (std::size_t x = 0; x < z.size(); ++x) {
    row.key[x] = static_cast<std::int32_t>(x);
    row.s[x] = row.capped[x] = row.z[x] = z[x];
    row.p[x] = std::exp(z[x] - row.m) / l;
  }
  for (std::size_t x = z.size(); x < z.size() + kMaxLanes; ++x) row.z[x] = kNoScore;
  return row;
}

std::vector<std::vector<int>> members(const GroupList& list) {
  std::vector<std::vector<int>> groups;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    const auto end = static_cast<std::size_t>(list.end[i]);
    groups.emplace_back(list.member.data() + begin, list.member.data() + end);
    begin = end;
  }
  return groups;
}

TEST(Groups, EqualAndNearlyEqualScores) {
  AttentionProblem problem;
  problem.head_dim = 4;
  PrecisionProfile profile;
  profile.u_p = 0x1p-8;
  const Arithmetic arithmetic = arithmetic_of(problem, profile);
  // 1e-3 is within u_P / 2 = 2e-3; the last key has no weight in double.
  const RowScores row = row_with({3, 1, 3, 2, 1.001, 3, 2, -800});
  RowTerms terms;
  Groups groups;
  RowSums sums = row_terms(arithmetic, row, terms);
  find_groups(arithmetic, row, terms, sums, groups);
  EXPECT_DOUBLE_EQ(sums.kappa, (1 + 1 + 4 + 9) / 7.0);
  EXPECT_EQ(members(groups.equal), (std::vector<std::vector<int>>{{3, 6}, {0, 2, 5}}));
  EXPECT_EQ(members(groups.rounded), (std::vector<std::vector<int>>{{1, 4}, {3, 6}, {0, 2, 5}}));
  EXPECT_DOUBLE_EQ(terms.lone_noise[1], terms.noise[1] * std::sqrt(2.0));
  EXPECT_EQ(terms.lone_noise[3], terms.noise[3]);
  EXPECT_EQ(terms.lone_eps[1], terms.eps[1]);
}

TEST(Groups, ManyEqualScoresComeOutOfTheWideSort) {
  AttentionProblem problem;
  const Arithmetic arithmetic = arithmetic_of(problem, {});
  std::vector<double> z(300);
  for (std::size_t x = 0; x < z.size(); ++x) z[x] = static_cast<double>(x % 3) - 1;
  const RowScores row = row_with(z);
  RowTerms terms;
  Groups groups;
  RowSums sums = row_terms(arithmetic, row, terms);
  find_groups(arithmetic, row, terms, sums, groups);
  EXPECT_DOUBLE_EQ(sums.kappa, 100);
  ASSERT_EQ(groups.equal.count, 3u);
  for (const auto& group : members(groups.equal)) EXPECT_EQ(group.size(), 100u);
}

TEST(RowTerms, MaximumMovesOncePerRisingBlock) {
  std::vector<double> z(64);
  for (std::size_t x = 0; x < z.size(); ++x) z[x] = static_cast<double>(x);
  EXPECT_EQ(max_updates(row_with(z)), 4);  // ascending: every block of 16
  for (double& x : z) x = -x;
  EXPECT_EQ(max_updates(row_with(z)), 4);  // descending
  for (double& x : z) x = 1;
  EXPECT_EQ(max_updates(row_with(z)), 1);
  RowScores row = row_with({1, 2, 3});
  row.key[0] = 15, row.key[1] = 16, row.key[2] = 40;  // three blocks, keys between them hidden
  EXPECT_EQ(max_updates(row), 3);
}

/// Scores stored in bf16 at 132,570 lie 1,024 apart: a key that is 600 below may carry the row.
TEST(Tolerance, ScoresThatMayMoveByMoreThanExpCanSay) {
  AttentionProblem problem;
  problem.dtype = DType::bf16;
  problem.head_dim = problem.v_head_dim = 1;
  problem.kv_len = 2;
  problem.scale = 1;
  AttentionInputs inputs;
  inputs.q = Dense<double>({1, 1, 1, 1});
  inputs.k = inputs.v = Dense<double>({1, 1, 2, 1});
  inputs.q.values = {100};
  inputs.k.values = {1325.7, 1319.7};
  inputs.v.values = {-1, 3};
  PrecisionProfile stored;
  stored.u_score = 0x1p-8;
  const Expected expected = expect(problem, inputs, stored);
  EXPECT_GT(expected.lse.t_mixed[0], 512);
  EXPECT_LT(expected.lse.t_mixed[0], 600);
  EXPECT_GT(expected.o.t_mixed[0], 4);  // it may be 3 where -1 is right
  // A finite mask value is as uncertain as it is low, and still far below.
  problem.bias = BiasKind::list;
  inputs.bias = Dense<double>({1, 1, 1, 2});
  inputs.bias.values = {0, -3e38};
  const Expected masked = expect(problem, inputs, stored);
  EXPECT_LT(masked.o.t_mixed[0], 1);
  EXPECT_LT(masked.lse.t_mixed[0], 600);
  // The lowest double, twice of which overflows.
  problem.dtype = DType::f64;
  inputs.bias.values = {0, -limits(DType::f64).max_finite};
  PrecisionProfile wide;
  wide.u_acc = wide.u_out = 0x1p-53;
  const Expected lowest = expect(problem, inputs, wide);
  EXPECT_LT(lowest.o.t_mixed[0], 1e-4);
  EXPECT_LT(lowest.lse.t_mixed[0], 1e-4);
}

/// f64 values so small that the squares of T_S would be 0 without the channel's unit.
TEST(Tolerance, F64VariancesDoNotUnderflow) {
  AttentionProblem problem;
  problem.dtype = DType::f64;
  problem.kv_len = 50, problem.head_dim = 8, problem.v_head_dim = 3;
  PrecisionProfile profile;
  profile.u_acc = profile.u_out = 0x1p-53;
  profile.e_exp = 0x1p-51;
  profile.eta_acc = profile.eta_out = 0x1p-1074;
  profile.eta_exp = 0x1p-1022;
  profile.max_acc = limits(DType::f64).max_finite;
  AttentionInputs inputs = testing_support::random_inputs(problem, 3);
  const Expected plain = expect(problem, inputs, profile);
  for (const int exponent : {-900, 900}) {
    AttentionInputs moved = inputs;
    for (double& v : moved.v.values) v = std::ldexp(v, exponent);
    const Expected expected = expect(problem, moved, profile);
    for (std::size_t x = 0; x < plain.o.value.size(); ++x) {
      EXPECT_EQ(expected.o.value[x], std::ldexp(plain.o.value[x], exponent));
      EXPECT_EQ(expected.o.low[x], std::ldexp(plain.o.low[x], exponent));
      EXPECT_DOUBLE_EQ(expected.o.t_stat[x], std::ldexp(plain.o.t_stat[x], exponent));
      EXPECT_DOUBLE_EQ(expected.o.t_mixed[x], std::ldexp(plain.o.t_mixed[x], exponent));
    }
  }
}

}  // namespace
}  // namespace attest
