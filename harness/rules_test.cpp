// SPDX-License-Identifier: Apache-2.0
// Rules and their yardstick on numbers worked out by hand.
#include "harness/rules.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/low_precision.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Rule& rule(std::string_view name) {
  for (const Rule& one : rules())
    if (one.name == name) return one;
  throw std::runtime_error("no such rule");
}

bool accuses(std::string_view name, DType dtype, double expected, double actual,
             double baseline = 0, double softcap = 0) {
  RuleInput in;
  in.dtype = dtype;
  in.softcap = softcap;
  in.expected = {expected};
  in.actual = {actual};
  in.baseline = {baseline};
  return rule(name).accuses(in);
}

TEST(Rules, AllcloseHasADefaultForEachDtype) {
  EXPECT_FALSE(accuses("allclose", DType::f32, 100, 100 + 1.39e-4));
  EXPECT_TRUE(accuses("allclose", DType::f32, 100, 100 + 1.41e-4));
  EXPECT_FALSE(accuses("allclose", DType::bf16, 1, 1.0159));
  EXPECT_TRUE(accuses("allclose", DType::bf16, 1, 1.0161));
  EXPECT_TRUE(accuses("allclose", DType::f16, 1, 1.0011));
  EXPECT_TRUE(accuses("allclose", DType::f64, 1, 1 + 2.1e-7));
}

TEST(Rules, InfinitiesAreCloseToThemselvesAlone) {
  EXPECT_FALSE(accuses("1e-2", DType::f32, -kInfinity, -kInfinity));
  EXPECT_TRUE(accuses("1e-2", DType::f32, -kInfinity, 0));
  EXPECT_TRUE(accuses("1e-2", DType::f32, -kInfinity, kInfinity));
  EXPECT_TRUE(accuses("1e-2", DType::f32, 0, NAN));
}

TEST(Rules, OnePercentIsAbsoluteAndRelative) {
  EXPECT_FALSE(accuses("1e-2", DType::f32, 1, 1.0199));
  EXPECT_TRUE(accuses("1e-2", DType::f32, 1, 1.0201));
  EXPECT_FALSE(accuses("1e-2", DType::f32, 0, 0.0099));
}

TEST(Rules, TwiceTheErrorOfTheLowPrecision) {
  // In bf16 0.125 + 0.3 is 218 2^-9, and less 0.3 it is 129 2^-10: off by 2^-10.
  const double slack = 2 * 0x1p-10;
  EXPECT_FALSE(accuses("2x", DType::bf16, 0.125, 0.125 + 0.02 + slack - 1e-9, 0.135));
  EXPECT_TRUE(accuses("2x", DType::bf16, 0.125, 0.125 + 0.02 + slack + 1e-9, 0.135));
  EXPECT_FALSE(accuses("2x", DType::bf16, 0.125, 0.125 + 0.03 + slack - 1e-9, 0.135, 30));
  EXPECT_TRUE(accuses("2x", DType::bf16, 0.125, NAN, 0.135));
}

TEST(Rules, MeanSquareIsRelativeToTheWhole) {
  // (0.0223)^2 = 4.97e-4, (0.0224)^2 = 5.02e-4.
  EXPECT_FALSE(accuses("NMSE 5e-4", DType::f32, 1, 1.0223));
  EXPECT_TRUE(accuses("NMSE 5e-4", DType::f32, 1, 1.0224));
  EXPECT_FALSE(accuses("NMSE 5e-4", DType::f32, 0, 0));
  EXPECT_TRUE(accuses("NMSE 5e-4", DType::f32, 0, 1e-30));
}

std::vector<double> low(const std::string& line) {
  const AttentionProblem problem = *parse_case(line);
  return low_precision_output(problem, make_inputs(problem));
}

TEST(LowPrecision, RoundsEveryStep) {
  // Two equal scores: weights of 1/2. The mean of 1 and 1.0078125 = 1 + 2^-7 lies halfway between
  // two bf16 numbers and goes to the even one.
  EXPECT_EQ(low("attention.forward dtype=bf16 lk=2 data=list q=0 k=0,0 v=1,1.0078125"),
            std::vector{1.0});
  EXPECT_EQ(low("attention.forward dtype=f32 lk=2 data=list q=0 k=0,0 v=1,1.0078125"),
            std::vector{1.00390625});
  // Scores of 1.1015625 and 0: the second weight is 0.24945, 255.43 2^-10.
  EXPECT_EQ(low("attention.forward dtype=bf16 lk=2 data=list q=1 k=1.1015625,0 v=0,1"),
            std::vector{255 * 0x1p-10});
}

TEST(LowPrecision, SeesWhatIsVisible) {
  EXPECT_EQ(low("attention.forward lq=2 lk=2 base=causal data=list q=0,0 k=0,0 v=1,3"),
            (std::vector{1.0, 2.0}));
}

TEST(CompareRules, TellsAFaultFromItsBase) {
  RuleOptions options;
  options.catalogue =
      *load_catalogue(std::string(ATTEST_BINARY_DIR) + "/lib/attest-test/faults_plain.so");
  options.problems = 20;
  RunError error;
  const Result<std::vector<RuleScore>> scores = compare_rules(options, error);
  ASSERT_TRUE(scores) << error.message;
  // A mean is no attention: every rule accuses all, so that no fault is told from its base.
  ASSERT_EQ(scores->size(), rules().size() * 2 * 4);
  for (const RuleScore& score : *scores) {
    if (score.dtype != "f32") continue;
    EXPECT_EQ(score.honest, 2) << score.rule;
    EXPECT_EQ(score.accused, 2) << score.rule;
    EXPECT_EQ(score.faulty, 6) << score.rule;
    EXPECT_EQ(score.missed, 0) << score.rule;
    EXPECT_EQ(score.told_apart, 0) << score.rule;
  }
}

}  // namespace
}  // namespace attest
