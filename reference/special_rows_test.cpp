// SPDX-License-Identifier: Apache-2.0
// Rows that the fast oracle does not weigh: conventions, hulls, what is not judged.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/expected.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One head, two queries, three keys, two channels; query 0 sees nothing, query 1 all.
struct Case {
  AttentionProblem problem;
  AttentionInputs inputs;

  explicit Case(DType dtype = DType::f32) {
    problem.dtype = dtype;
    problem.q_len = 2, problem.kv_len = 3;
    problem.head_dim = 1, problem.v_head_dim = 2;
    problem.mask = MaskKind::list;
    problem.mask_axes = {false, false, true, false};
    inputs = testing_support::random_inputs(problem, 1);
    inputs.mask.values = {0, 1};
    inputs.q.values = {1, 2};
    inputs.k.values = {1, -1, 2};
    inputs.v.values = {1, -4, 2, -5, 6, -6};
  }
  Expected run(const PrecisionProfile& profile = {}) const {
    return expect(problem, inputs, profile);
  }
};

TEST(SpecialRows, EmptyRowFollowsTheConventionExactly) {
  Case c;
  Expected expected = c.run();
  ASSERT_EQ(expected.rows[0], RowKind::empty);
  EXPECT_EQ(expected.o.value[0], 0);
  EXPECT_EQ(expected.o.t_mixed[0], 0);
  EXPECT_EQ(expected.lse.value[0], -kInfinity);
  EXPECT_EQ(expected.rows[1], RowKind::ordinary);

  c.problem.empty_output = EmptyOutput::nan;
  c.problem.empty_lse = EmptyLse::pos_inf;
  expected = c.run();
  EXPECT_TRUE(std::isnan(expected.o.value[1]));
  EXPECT_EQ(expected.lse.value[0], kInfinity);

  c.problem.empty_output = EmptyOutput::unspecified;
  c.problem.empty_lse = EmptyLse::zero;
  expected = c.run();
  EXPECT_EQ(expected.o.t_mixed[1], kInfinity);
  EXPECT_EQ(expected.lse.value[0], 0);
  EXPECT_EQ(expected.lse.t_mixed[0], 0);
}

TEST(SpecialRows, MeanOfVHasTheToleranceOfAMean) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Case c(dtype);
    c.problem.empty_output = EmptyOutput::mean_v;
    const Expected expected = c.run();
    EXPECT_EQ(expected.o.value[0], 3);
    EXPECT_EQ(expected.o.value[1], -5);
    // n = 3 equal addends: g(5) = 5u; 4u; the output's half ulp of 3 to 4 is 2u.
    const double u = 0x1p-24;
    EXPECT_DOUBLE_EQ(expected.o.t_mixed[0], 9 * u * 3 + 2 * u);
    EXPECT_LT(expected.o.radius[0], 1e-6 * expected.o.t_mixed[0]);
  }
}

TEST(SpecialRows, EmptyRowWithASinkIsTheSink) {
  Case c;
  c.problem.sink = SinkKind::list;
  c.problem.empty_output = EmptyOutput::nan;
  c.inputs.sink = Dense<double>({1, 1, 1, 1});
  c.inputs.sink.values = {5};
  const Expected expected = c.run();
  ASSERT_EQ(expected.rows[0], RowKind::empty_sink);
  EXPECT_EQ(expected.o.value[0], 0);
  EXPECT_EQ(expected.o.t_mixed[0], 0);
  EXPECT_EQ(expected.lse.value[0], 5);
  // 4u|sink| and half an ulp of a number in [4, 8).
  EXPECT_EQ(expected.lse.t_mixed[0], 20 * 0x1p-24 + 4 * 0x1p-24);
}

TEST(SpecialRows, PaddingRowsAreZero) {
  Case c;
  c.problem.seqlens_q = {1};
  c.inputs.mask.values = {1, 1};
  c.inputs.q.values[1] = kNan;  // never read
  const Expected expected = c.run();
  EXPECT_EQ(expected.rows[0], RowKind::ordinary);
  ASSERT_EQ(expected.rows[1], RowKind::padding);
  EXPECT_EQ(expected.o.value[2], 0);
  EXPECT_EQ(expected.lse.value[1], -kInfinity);
}

TEST(SpecialRows, FiniteMasksOnEveryKeyGiveTheHullOfV) {
  Case c;
  c.problem.bias = BiasKind::list;
  c.problem.bias_axes = {false, false, false, false};
  c.inputs.bias = Dense<double>({1, 1, 1, 1});
  c.inputs.bias.values = {-limits(DType::f32).max_finite};
  const Expected expected = c.run();
  ASSERT_EQ(expected.rows[1], RowKind::lowest_only);
  EXPECT_LT(expected.o_low[2], 1);
  EXPECT_NEAR(expected.o_low[2], 1, 1e-5);
  EXPECT_GT(expected.o_high[2], 6);
  EXPECT_NEAR(expected.o_high[2], 6, 1e-5);
  EXPECT_NEAR(expected.o_low[3], -6, 1e-5);
  EXPECT_NEAR(expected.o_high[3], -4, 1e-5);
  EXPECT_EQ(expected.lse.t_mixed[1], kInfinity);
}

/// Three parts of one key each: lse of -49152 and of -49152 + ln 3 differ by 281 ulps in f32, that
/// of the lowest f32 by none, so that every part gets the weight 1 and o is the sum of v, not its
/// mean.
TEST(SpecialRows, MergedPartsOfFiniteMasksMayWeighOneEach) {
  PrecisionProfile merged;
  merged.lse_merged = true;
  Case c;
  c.problem.bias = BiasKind::list;
  c.problem.bias_axes = {false, false, false, false};
  c.inputs.bias = Dense<double>({1, 1, 1, 1});
  c.inputs.bias.values = {-limits(DType::f32).max_finite};
  const Expected all_absorbed = c.run(merged);
  ASSERT_EQ(all_absorbed.rows[1], RowKind::lowest_only);
  EXPECT_GE(all_absorbed.o_high[2], 1 + 2 + 6);
  EXPECT_LE(all_absorbed.o_low[3], -4 - 5 - 6);
  EXPECT_LT(all_absorbed.o_high[2], 6 * 3.01);  // and no more than that for the largest v

  Case half(DType::f16);
  half.problem.bias = BiasKind::list;
  half.problem.bias_axes = {false, false, false, false};
  half.inputs.bias = Dense<double>({1, 1, 1, 1});
  half.inputs.bias.values = {-49152};
  const Expected expected = half.run(merged);
  ASSERT_EQ(expected.rows[1], RowKind::lowest_only);
  EXPECT_GT(expected.o_high[2], 6 * (1 + 0x1p-9));  // half an ulp of lse is 2^-9
  EXPECT_LT(expected.o_high[2], 6 * 1.02);
}

TEST(SpecialRows, TheHullHoldsWhatDropoutMakesOfV) {
  Case c;
  c.problem.bias = BiasKind::list;
  c.problem.bias_axes = {false, false, false, false};
  c.inputs.bias = Dense<double>({1, 1, 1, 1});
  c.inputs.bias.values = {-limits(DType::f32).max_finite};
  c.problem.dropout_p = 0.5;
  c.inputs.keep = Dense<std::uint8_t>({1, 1, 2, 3});
  c.inputs.keep.values = {1, 1, 1, 1, 0, 1};
  const Expected expected = c.run();
  EXPECT_NEAR(expected.o_low[2], 0, 2e-5);    // the dropped key
  EXPECT_NEAR(expected.o_high[2], 12, 2e-5);  // 6 / (1 - 0.5)
}

TEST(SpecialRows, AFiniteMaskBesideOrdinaryScoresHasNoWeight) {
  Case c;
  c.problem.bias = BiasKind::list;
  c.problem.bias_axes = {false, false, false, true};
  c.inputs.bias = Dense<double>({1, 1, 1, 3});
  c.inputs.bias.values = {0, -limits(DType::f32).max_finite, -limits(DType::f32).max_finite};
  const Expected expected = c.run();
  ASSERT_EQ(expected.rows[1], RowKind::ordinary);
  EXPECT_EQ(expected.o.value[2], 1);
  EXPECT_LT(expected.o.t_mixed[2], 1e-5);
  EXPECT_LT(expected.o.t_stat[2], 1e-5);
}

TEST(SpecialRows, AVisibleNanIsNotJudgedAMaskedOneChangesNothing) {
  Case c;
  c.problem.mask_axes = {false, false, true, true};
  c.inputs.mask = Dense<std::uint8_t>({1, 1, 2, 3});
  c.inputs.mask.values = {1, 0, 1, 1, 1, 1};
  const Expected clean = c.run();
  c.inputs.k.values[1] = kNan;
  c.inputs.v.values[3] = kInfinity;
  const Expected dirty = c.run();
  ASSERT_EQ(dirty.rows[0], RowKind::ordinary);
  EXPECT_EQ(dirty.o.value[0], clean.o.value[0]);
  EXPECT_EQ(dirty.o.t_stat[0], clean.o.t_stat[0]);
  EXPECT_EQ(dirty.o.radius[0], clean.o.radius[0]);
  EXPECT_EQ(dirty.lse.value[0], clean.lse.value[0]);
  ASSERT_EQ(dirty.rows[1], RowKind::unspecified);
  EXPECT_TRUE(std::isnan(dirty.o.value[2]));
  EXPECT_EQ(dirty.o.t_mixed[2], kInfinity);
}

TEST(SpecialRows, BeyondAQuarterOfTheAccumulatorIsOutsideTheDomain) {
  PrecisionProfile half;
  half.max_acc = 65504;
  Case c(DType::f16);
  c.inputs.mask.values = {1, 1};
  EXPECT_EQ(c.run(half).rows[1], RowKind::ordinary);
  c.inputs.q.values = {1, 8190};  // times k = 2: 16380 > 65504 / 4
  EXPECT_EQ(c.run(half).rows[0], RowKind::ordinary);
  EXPECT_EQ(c.run(half).rows[1], RowKind::outside_domain);
  EXPECT_EQ(c.run().rows[1], RowKind::ordinary);
  c.problem.scale = 0.001;  // the product itself is that large
  EXPECT_EQ(c.run(half).rows[1], RowKind::outside_domain);
  c.inputs.q.values = {1, 1};
  c.inputs.v.values = {6000, 0, -6000, 0, 6000, 0};  // sum |v| = 18000
  EXPECT_EQ(c.run(half).rows[1], RowKind::outside_domain);
  EXPECT_EQ(c.run(half).o.t_mixed[2], kInfinity);
  c.inputs.mask.values = {0, 1};
  EXPECT_EQ(c.run(half).rows[0], RowKind::empty);
}

TEST(SpecialRows, AScoreThatOverflowsUnderABiasOfMinusInfinityIsOutsideTheDomain) {
  PrecisionProfile half;
  half.max_acc = 65504;
  AttentionProblem problem;
  problem.dtype = DType::f16;
  problem.kv_len = 2;
  problem.bias = BiasKind::list;
  AttentionInputs inputs;
  inputs.q = Dense<double>({1, 1, 1, 1});
  inputs.k = Dense<double>({1, 1, 2, 1});
  inputs.v = Dense<double>({1, 1, 2, 1});
  inputs.bias = Dense<double>({1, 1, 1, 2});
  inputs.q.values = {256};
  inputs.k.values = {1, 384};  // 256 * 384 = 98304 > 65504: Inf, and Inf - Inf with its bias
  inputs.bias.values = {0, -kInfinity};
  EXPECT_EQ(expect(problem, inputs, half).rows[0], RowKind::outside_domain);
  EXPECT_EQ(expect(problem, inputs, {}).rows[0], RowKind::ordinary);
  inputs.bias.values = {-kInfinity, -kInfinity};
  EXPECT_EQ(expect(problem, inputs, half).rows[0], RowKind::outside_domain);
  EXPECT_EQ(expect(problem, inputs, {}).rows[0], RowKind::empty);
  inputs.k.values = {1, 1};
  EXPECT_EQ(expect(problem, inputs, half).rows[0], RowKind::empty);
}

TEST(SpecialRows, AScoreThatOverflowsUnderAFiniteMaskValueIsOutsideTheDomain) {
  PrecisionProfile half;
  half.max_acc = 65504;
  AttentionProblem problem;
  problem.dtype = DType::f16;
  problem.kv_len = 2;
  problem.bias = BiasKind::list;
  AttentionInputs inputs;
  inputs.q = Dense<double>({1, 1, 1, 1});
  inputs.k = Dense<double>({1, 1, 2, 1});
  inputs.v = Dense<double>({1, 1, 2, 1});
  inputs.bias = Dense<double>({1, 1, 1, 2});
  inputs.q.values = {256};
  inputs.k.values = {1, 384};  // 98304: Inf in f16, and Inf it stays whatever is added
  inputs.bias.values = {-65504, -65504};
  EXPECT_EQ(expect(problem, inputs, half).rows[0], RowKind::outside_domain);
  EXPECT_EQ(expect(problem, inputs, {}).rows[0], RowKind::lowest_only);
  inputs.k.values = {1, 1};
  EXPECT_EQ(expect(problem, inputs, half).rows[0], RowKind::lowest_only);
}

TEST(SpecialRows, AScoreBeyondItsStorageIsOutsideTheDomain) {
  PrecisionProfile stored;
  stored.u_score = 0x1p-11;
  stored.max_score = 65504;
  Case c;
  c.inputs.q.values = {1, 40000};
  EXPECT_EQ(c.run(stored).rows[1], RowKind::outside_domain);
  EXPECT_EQ(c.run().rows[1], RowKind::ordinary);
}

TEST(SpecialRows, NoKeysAtAll) {
  AttentionProblem problem;
  problem.q_len = 2, problem.kv_len = 0;
  const AttentionInputs inputs = testing_support::random_inputs(problem, 1);
  const Expected expected = expect(problem, inputs, {});
  EXPECT_EQ(expected.rows[0], RowKind::empty);
  EXPECT_EQ(expected.o.value, (std::vector<double>{0, 0}));
}

TEST(SpecialRows, NoChannelsAtAll) {
  AttentionProblem problem;
  problem.head_dim = 0, problem.v_head_dim = 0, problem.scale = 2, problem.kv_len = 4;
  for (const DType dtype : {DType::f32, DType::f64}) {
    problem.dtype = dtype;
    const Expected expected = expect(problem, testing_support::random_inputs(problem, 1), {});
    EXPECT_TRUE(expected.o.value.empty());
    // Every score is 0.
    EXPECT_NEAR(expected.lse.value[0], std::log(4.0), 1e-15);
    EXPECT_GT(expected.lse.t_mixed[0], 0);
  }
}

}  // namespace
}  // namespace attest
