// SPDX-License-Identifier: Apache-2.0
// The fast oracle against the definition: every element inside its certified radius, and the radius
// small beside the tolerance.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <set>
#include <string>

#include "reference/definition.hpp"
#include "reference/expected.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// About normal: a sum of four uniforms, times a power of two.
double bell(Random& random, int exponent) {
  double sum = 0;
  for (int n = 0; n < 4; ++n) sum += static_cast<double>(random.bits() >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(sum * std::sqrt(3.0), exponent);
}

/// Inputs whose values use every bit of the storage type.
AttentionInputs bell_inputs(const AttentionProblem& problem, std::uint64_t seed, int qk_exponent,
                            int v_exponent) {
  AttentionInputs inputs = testing_support::random_inputs(problem, seed);
  Random random(seed ^ 0xbe11);
  for (double& x : inputs.q.values) x = round_to(problem.dtype, bell(random, qk_exponent));
  for (double& x : inputs.k.values) x = round_to(problem.dtype, bell(random, qk_exponent));
  for (double& x : inputs.v.values) x = round_to(problem.dtype, bell(random, v_exponent));
  return inputs;
}

PrecisionProfile profile_of(DType dtype) {
  PrecisionProfile profile;
  const DTypeLimits type = limits(dtype);
  profile.u_out = type.unit_roundoff;
  profile.eta_out = type.half_min_subnormal;
  if (dtype == DType::f64) {
    profile.u_acc = 0x1p-53;
    profile.eta_acc = 0x1p-1074;
    profile.e_exp = 0x1p-51;
    profile.eta_exp = 0x1p-1022;
    profile.max_acc = type.max_finite;
  } else if (dtype != DType::f32) {
    profile.u_p = type.unit_roundoff;
    profile.eta_p = type.half_min_subnormal;
  }
  return profile;
}

struct Worst {
  double error_over_radius = 0, radius_over_tolerance = 0;
  std::int64_t elements = 0;
};

bool same_special(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (!std::isfinite(a) && a == b);
}

void compare_element(const ExactNumber& exact, const ExpectedTensor& tensor, std::size_t at,
                     const std::string& where, Worst& worst) {
  if (!std::isfinite(exact.high)) {
    EXPECT_TRUE(same_special(exact.high, tensor.value[at])) << where;
    return;
  }
  if (tensor.radius[at] == kInfinity) return;
  const double error = std::fabs((tensor.value[at] - exact.high) + (tensor.low[at] - exact.low));
  EXPECT_LE(error, tensor.radius[at])
      << where << " value " << tensor.value[at] << " exact " << exact.high;
  ++worst.elements;
  if (error > 0)
    worst.error_over_radius = std::max(worst.error_over_radius, error / tensor.radius[at]);
  const double tolerance = std::min(tensor.t_mixed[at], tensor.t_stat[at]);
  if (tensor.radius[at] > 0)
    worst.radius_over_tolerance =
        std::max(worst.radius_over_tolerance, tensor.radius[at] / tolerance);
}

void compare(const AttentionProblem& problem, const AttentionInputs& inputs,
             const std::string& name, Worst& worst) {
  const Expected expected = expect(problem, inputs, profile_of(problem.dtype));
  const auto channels = static_cast<std::size_t>(problem.v_head_dim);
  std::size_t row = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i, ++row) {
        const ExactRow exact = definition_row(problem, inputs, b, h, i);
        const std::string where = name + " row " + std::to_string(row);
        if (expected.rows[row] == RowKind::outside_domain) continue;
        ASSERT_EQ(static_cast<int>(exact.kind), static_cast<int>(expected.rows[row])) << where;
        if (exact.kind == RowKind::unspecified) continue;
        for (std::size_t c = 0; c < channels; ++c)
          compare_element(exact.o[c], expected.o, row * channels + c,
                          where + " channel " + std::to_string(c), worst);
        compare_element(exact.lse, expected.lse, row, where + " lse", worst);
      }
}

class Dtypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(FastOracle, Dtypes, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(Dtypes, EveryFeatureStaysInsideTheRadius) {
  Worst worst;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    AttentionProblem problem = testing_support::random_problem(seed);
    problem.dtype = GetParam();
    ASSERT_EQ(problem_error(problem), std::nullopt) << seed;
    const int spread = static_cast<int>(seed % 4);
    compare(problem, bell_inputs(problem, seed, spread, static_cast<int>(seed % 7) - 3),
            "seed " + std::to_string(seed), worst);
    if (HasFailure()) return;
  }
  RecordProperty("error_over_radius", std::to_string(worst.error_over_radius));
  RecordProperty("radius_over_tolerance", std::to_string(worst.radius_over_tolerance));
  EXPECT_GT(worst.elements, 10000);
  EXPECT_LT(worst.radius_over_tolerance, GetParam() == DType::f64 ? 0.1 : 1e-3);
}

/// Runs with one SIMD target at a time, the widest last, and puts the choice back.
class EveryTarget : public ::testing::Test {
 protected:
  template <class Body>
  void for_each_target(Body body) {
    std::set<std::string> seen;
    for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      if (seen.insert(oracle_simd_target()).second) body(oracle_simd_target());
      hwy::SetSupportedTargetsForTest(0);
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_GE(seen.size(), 1u);
    RecordProperty("targets", static_cast<int>(seen.size()));
  }
};

TEST_F(EveryTarget, ValuesStayInsideTheRadiusAndTolerancesAgree) {
  constexpr int kProblems = 60;
  std::vector<Expected> first;
  for_each_target([&](const std::string& target) {
    Worst worst;
    for (int seed = 0; seed < kProblems; ++seed) {
      AttentionProblem problem = testing_support::random_problem(static_cast<std::uint64_t>(seed));
      problem.dtype = kAllDTypes[seed % 4];
      problem.v_head_dim = 1 + seed % 21;
      const AttentionInputs inputs = bell_inputs(problem, static_cast<std::uint64_t>(seed), 1, 0);
      compare(problem, inputs, target + " seed " + std::to_string(seed), worst);
      const Expected expected = expect(problem, inputs, profile_of(problem.dtype));
      if (static_cast<int>(first.size()) < kProblems) {
        first.push_back(expected);
        continue;
      }
      const Expected& other = first[static_cast<std::size_t>(seed)];
      for (std::size_t x = 0; x < expected.o.value.size(); ++x) {
        if (!std::isfinite(expected.o.t_mixed[x])) continue;
        ASSERT_NEAR(expected.o.t_mixed[x], other.o.t_mixed[x], 1e-9 * other.o.t_mixed[x]) << target;
        ASSERT_NEAR(expected.o.t_stat[x], other.o.t_stat[x], 1e-9 * other.o.t_stat[x]) << target;
      }
    }
    EXPECT_GT(worst.elements, 1000);
  });
}

TEST(FastOracle, SameCallTwiceGivesTheSameBits) {
  AttentionProblem problem;
  problem.num_heads = 2, problem.q_len = 5, problem.kv_len = 300;
  problem.head_dim = 24, problem.v_head_dim = 11;
  const AttentionInputs inputs = bell_inputs(problem, 1, 0, 0);
  const Expected a = expect(problem, inputs, profile_of(problem.dtype));
  AttentionProblem other = problem;
  other.kv_len = 40;  // leaves other contents in the workspace
  other.v_head_dim = 50;
  expect(other, bell_inputs(other, 2, 3, 3), profile_of(problem.dtype));
  const Expected b = expect(problem, inputs, profile_of(problem.dtype));
  EXPECT_EQ(a.o.value, b.o.value);
  EXPECT_EQ(a.o.radius, b.o.radius);
  EXPECT_EQ(a.o.t_mixed, b.o.t_mixed);
  EXPECT_EQ(a.o.t_stat, b.o.t_stat);
  EXPECT_EQ(a.lse.t_stat, b.lse.t_stat);
}

TEST(FastOracle, ValuesAloneAreTheSameValues) {
  const AttentionProblem problem = testing_support::random_problem(17);
  const AttentionInputs inputs = bell_inputs(problem, 17, 0, 0);
  OracleOptions values_alone;
  values_alone.tolerance = false;
  const Expected with = expect(problem, inputs, profile_of(problem.dtype));
  const Expected without = expect(problem, inputs, profile_of(problem.dtype), values_alone);
  EXPECT_TRUE(with.has_tolerance);
  EXPECT_FALSE(without.has_tolerance);
  EXPECT_EQ(with.o.value, without.o.value);
  EXPECT_EQ(with.o.radius, without.o.radius);
  EXPECT_EQ(with.lse.radius, without.lse.radius);
}

}  // namespace
}  // namespace attest
