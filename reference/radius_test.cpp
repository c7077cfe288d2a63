// SPDX-License-Identifier: Apache-2.0
// Every step of the oracle's own arithmetic is in its radius. Problems of one key, where lse is the
// score itself and nothing else can cover for a missing term; the least that each term must give is
// worked out by hand in units of 2^-53.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/definition.hpp"
#include "reference/expected.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

constexpr double kUnit = 0x1p-53;

struct OneKey {
  AttentionProblem problem;
  AttentionInputs inputs;

  explicit OneKey(std::int64_t head_dim = 1) {
    problem.head_dim = head_dim;
    problem.scale = 1;
    fill(0, 0);
  }
  /// q alternates +-x, k is y: q.k = 0 for an even head_dim, sum |q k| = D |x y|.
  void fill(double x, double y) {
    inputs = testing_support::random_inputs(problem, 1);
    for (std::size_t c = 0; c < inputs.q.values.size(); ++c)
      inputs.q.values[c] = static_cast<float>(c % 2 ? -x : x);
    for (double& k : inputs.k.values) k = static_cast<float>(y);
  }
  double radius() const { return expect(problem, inputs, {}).lse.radius[0]; }
};

TEST(Radius, HoldsTheDotProduct) {
  OneKey one(256);
  one.fill(3, 2);
  EXPECT_GE(one.radius(), 256 * kUnit * 256 * 6);
  EXPECT_LE(one.radius(), 4 * 256 * kUnit * 256 * 6);
}

TEST(Radius, HoldsTheRotation) {
  OneKey one(2);
  one.fill(300, 200);
  const double without = one.radius();
  one.problem.rope = RopePairing::half;  // at position 0, where nothing moves
  // Three roundings of each rotated channel on either side: at least 6 |q_pair| |k_pair|.
  EXPECT_GE(one.radius() - without, 6 * kUnit * 300 * 200 * 2);
}

TEST(Radius, HoldsAlibi) {
  OneKey one;
  one.problem.alibi = AlibiKind::signed_;
  one.problem.align = Align::q_offset;
  one.problem.q_offset = {1'000'000};
  one.fill(0, 0);
  one.inputs.slopes.values = {static_cast<float>(0.1)};
  const double without = 2 * kUnit * (3 * 1e5);  // what the size of lse gives by itself
  EXPECT_GE(one.radius(), kUnit * 1e5);
  EXPECT_GE(one.radius(), without);
}

TEST(Radius, HoldsTheBias) {
  OneKey one;
  one.problem.bias = BiasKind::normal;
  one.fill(1, 1);
  one.inputs.bias.values = {static_cast<float>(-1e5)};
  EXPECT_GE(one.radius(), 2 * kUnit * 3e5);
}

TEST(Radius, HoldsTanhAndIsDampedByIt) {
  OneKey one;
  one.problem.softcap = 1e4;
  one.fill(1e2, 3e2);
  EXPECT_GE(one.radius(), 8 * kUnit * 1e4 * std::tanh(3.0));
  // Far beyond the cap the error of the dot product does not reach the score.
  one.fill(1e10, 1e10);
  EXPECT_LE(one.radius(), 100 * kUnit * 1e4);
}

TEST(Radius, HoldsExpAndTheSums) {
  AttentionProblem problem;
  problem.kv_len = 1000;
  problem.scale = 1;
  AttentionInputs inputs = testing_support::random_inputs(problem, 1);
  inputs.q.values = {0};
  for (double& v : inputs.v.values) v = 1;
  const Expected expected = expect(problem, inputs, {});
  // 1,000 additions of 1/1000, twice: in o and in l.
  EXPECT_GE(expected.o.radius[0], 2 * 1000 * kUnit);
  EXPECT_LE(expected.o.radius[0], 20 * 1000 * kUnit);
  EXPECT_GE(expected.lse.radius[0], 1000 * kUnit);
}

/// Two equal scores of cancelling terms, v = 1 and 0: o is the weight of the first key, which errs
/// through l by what the second one errs.
TEST(Radius, TheLargestWeightMovesWithTheOthers) {
  OneKey one(2);
  one.problem.kv_len = 2;
  one.fill(1e4, 1e4);
  one.inputs.v.values = {1, 0};
  const Expected expected = expect(one.problem, one.inputs, {});
  EXPECT_EQ(expected.o.value[0], 0.5);
  const double score_error = 2 * kUnit * 2e8;
  EXPECT_GE(expected.o.radius[0], 0.25 * 2 * score_error);
}

/// A shared error of all scores cancels in o, so only differences to the largest score may count.
TEST(Radius, OneKeyIsExactInOHoweverLargeItsScore) {
  OneKey one(2);
  one.problem.v_head_dim = 1;
  one.fill(1e9, 1e9);
  one.inputs.k.values[1] = 0;
  one.inputs.v.values = {1};
  const Expected expected = expect(one.problem, one.inputs, {});
  EXPECT_LT(expected.o.radius[0], 1e-14);
  EXPECT_GT(expected.lse.radius[0], 1e2);
}

/// Two scores whose order double cannot tell: o may be either v, and the radius says so.
TEST(Radius, AdmitsThatTheOrderIsUnknown) {
  AttentionProblem problem;
  problem.head_dim = 64, problem.kv_len = 2, problem.scale = 1;
  AttentionInputs inputs = testing_support::random_inputs(problem, 1);
  for (std::size_t c = 0; c < 64; ++c) {
    inputs.q.values[c] = static_cast<float>(1e9);
    inputs.k.values[c] = static_cast<float>(1e9 / (1 + 0.11 * static_cast<double>(c)));
    inputs.k.values[64 + (c + 1) % 64] = inputs.k.values[c];
  }
  inputs.v.values = {-1, 1};
  const Expected expected = expect(problem, inputs, {});
  const ExactRow exact = definition_row(problem, inputs, 0, 0, 0);
  EXPECT_LE(std::fabs(expected.o.value[0] - exact.o[0].high), expected.o.radius[0]);
  EXPECT_GE(expected.o.radius[0], 1);
}

}  // namespace
}  // namespace attest
