// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "attest/case_line.hpp"
#include "harness/families.hpp"
#include "harness/judge.hpp"

namespace attest {
namespace {

/// 256 rows of 8 channels; o and the temperature direction are random, sigma is 2^-20.
struct Setting {
  AttentionProblem problem = *parse_case("attention.forward hq=4 lq=64 lk=9 d=8");
  Expected expected;
  std::vector<double> noise;  ///< with the standard deviation 0.1 sigma of honest rounding

  Setting() {
    constexpr std::size_t kRows = 256, kCount = kRows * 8;
    for (auto [tensor, count] : {std::pair{&expected.o, kCount}, std::pair{&expected.lse, kRows}}) {
      tensor->value.resize(count);
      tensor->low.assign(count, 0);
      tensor->t_stat.assign(count, 0x1p-18);  // lambda = 4
      tensor->t_mixed.assign(count, 0x1p-10);
      for (std::size_t n = 0; n < count; ++n) tensor->value[n] = gaussian(absorb(1, n));
    }
    for (std::size_t n = 0; n < kCount; ++n) {
      expected.temperature.push_back(gaussian(absorb(2, n)));
      noise.push_back(0.1 * 0x1p-20 * gaussian(absorb(3, n)));
    }
    expected.rows.assign(kRows, RowKind::ordinary);
    expected.vagueness.assign(kRows, 0);
  }

  /// o plus noise plus `amount` sigma along a unit vector of the row's direction.
  std::vector<double> leaning(const std::vector<double>& direction, double amount) const {
    std::vector<double> actual = expected.o.value;
    for (std::size_t row = 0; row < 256; ++row) {
      double norm = 0;
      for (std::size_t n = row * 8; n < row * 8 + 8; ++n) norm += direction[n] * direction[n];
      for (std::size_t n = row * 8; n < row * 8 + 8; ++n)
        actual[n] += noise[n] + amount * 0x1p-20 * direction[n] / std::sqrt(norm);
    }
    return actual;
  }
};

TEST(Bias, UnbiasedNoisePasses) {
  const Setting s;
  const CaseResult result =
      judge_bias(s.problem, s.expected, Output::o, s.leaning(s.expected.o.value, 0), true);
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(result.elements_compared, 2048);
}

// |z| is the planted amount: below 0.5 it passes, though t is far above 6 already.
TEST(Bias, FindsALeanAlongTheOutputAboveHalfAStandardDeviation) {
  const Setting s;
  for (const double amount : {0.3, -0.3, 0.45})
    EXPECT_EQ(
        judge_bias(s.problem, s.expected, Output::o, s.leaning(s.expected.o.value, amount), true)
            .verdict,
        Verdict::pass)
        << amount;
  for (const double amount : {0.6, -0.6, -2.9}) {
    const CaseResult result =
        judge_bias(s.problem, s.expected, Output::o, s.leaning(s.expected.o.value, amount), true);
    EXPECT_EQ(result.verdict, Verdict::fail) << amount;
    EXPECT_EQ(result.reason, Reason::biased);
    EXPECT_NE(result.detail.find("the output itself"), std::string::npos) << result.detail;
  }
}

TEST(Bias, FindsAWrongTemperature) {
  const Setting s;
  const CaseResult result =
      judge_bias(s.problem, s.expected, Output::o, s.leaning(s.expected.temperature, 0.8), true);
  EXPECT_EQ(result.verdict, Verdict::fail);
  EXPECT_NE(result.detail.find("temperature"), std::string::npos) << result.detail;
}

TEST(Bias, FindsAnLseThatIsAlwaysTooSmall) {
  const Setting s;
  std::vector<double> lse = s.expected.lse.value;
  for (std::size_t row = 0; row < lse.size(); ++row) lse[row] += s.noise[row];
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::lse, lse, true).verdict, Verdict::pass);
  for (double& value : lse) value -= 0x1p-20;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::lse, lse, true).verdict, Verdict::fail);
}

// Honest kernels round the same way again and again on structured data.
TEST(Bias, OnStructuredDataItOnlyWarns) {
  const Setting s;
  const CaseResult result =
      judge_bias(s.problem, s.expected, Output::o, s.leaning(s.expected.o.value, 3), false);
  EXPECT_EQ(result.verdict, Verdict::warn);
  EXPECT_EQ(result.reason, Reason::biased);
}

TEST(Bias, FewRowsOrFewThatSaySomethingAreNotJudged) {
  Setting s;
  const std::vector<double> actual = s.leaning(s.expected.o.value, 3);
  for (std::size_t row = 31; row < 256; ++row)
    s.expected.rows[row] = row % 2 ? RowKind::padding : RowKind::empty;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict,
            Verdict::not_judged);
  s.expected.rows[31] = RowKind::ordinary;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict, Verdict::fail);
  s.expected.vagueness[31] = 0.2;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict,
            Verdict::not_judged);
}

TEST(Bias, RowsThatUnderflowAreLeftOut) {
  Setting s;
  s.problem.dtype = DType::f16;
  const std::vector<double> zeros(s.expected.o.value.size(), 0);
  for (double& value : s.expected.o.value) value *= 1e-6;
  for (double& t : s.expected.o.t_stat) t *= 1e-6;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, zeros, true).verdict, Verdict::not_judged);
  s.problem.dtype = DType::bf16;  // holds 1e-6 with all its bits
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, zeros, true).verdict, Verdict::fail);
}

// Equal rows make equal errors: 256 rows of one value are one observation, not a bias.
TEST(Bias, RowsThatRepeatOthersAreNoEvidence) {
  Setting s;
  for (std::size_t n = 8; n < 2048; ++n) s.expected.o.value[n] = s.expected.o.value[n % 8];
  std::vector<double> actual = s.expected.o.value;
  for (double& value : actual) value += 2 * 0x1p-20 * value;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict,
            Verdict::not_judged);
}

// Nor are rows that agree to within the tolerance: what rounds one of them rounds all of them.
TEST(Bias, RowsThatNearlyRepeatOthersAreNoEvidence) {
  Setting s;
  for (std::size_t n = 8; n < 2048; ++n)
    s.expected.o.value[n] = s.expected.o.value[n % 8] + 0x1p-28 * s.expected.temperature[n];
  std::vector<double> actual = s.expected.o.value;
  for (double& value : actual) value += 2 * 0x1p-20 * value;
  EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict,
            Verdict::not_judged);
}

// A row that is nearly one-hot lies close to a multiple of the output's last digit, on either side.
TEST(Bias, RowsCloseToOneNumberOfTheTypeAreOneObservation) {
  for (const double spacing : {0x1p-17, 0x1p-18, 0x1p-19}) {
    Setting s;
    for (std::size_t n = 0; n < 2048; ++n)
      s.expected.o.value[n] =
          spacing * (1001 + 3 * static_cast<double>(n % 8)) + 0x1p-28 * s.expected.temperature[n];
    std::vector<double> actual = s.expected.o.value;
    for (std::size_t n = 0; n < 2048; ++n) actual[n] -= 0x1p-20 * s.expected.temperature[n];
    EXPECT_EQ(judge_bias(s.problem, s.expected, Output::o, actual, true).verdict,
              Verdict::not_judged)
        << spacing;
  }
}

TEST(Bias, ANonFiniteRowSaysNothingHere) {
  const Setting s;
  std::vector<double> actual = s.leaning(s.expected.o.value, 0);
  actual[5] = std::numeric_limits<double>::quiet_NaN();
  const CaseResult result = judge_bias(s.problem, s.expected, Output::o, actual, true);
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(result.elements_compared, 2040);
}

}  // namespace
}  // namespace attest
