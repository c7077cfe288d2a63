// SPDX-License-Identifier: Apache-2.0
// The tester is tested: errors are planted in otherwise right outputs, and exactly they are found.
#include "harness/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/case_line.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

AttentionProblem problem(const std::string& text) {
  auto parsed = parse_case("attention.forward " + text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error());
  return parsed ? *parsed : AttentionProblem{};
}

ExpectedTensor tensor(std::size_t count, double value, double t_mixed, double t_stat) {
  ExpectedTensor result;
  result.value.assign(count, value);
  result.low.assign(count, 0);
  result.radius.assign(count, 0);
  result.t_mixed.assign(count, t_mixed);
  result.t_stat.assign(count, t_stat);
  return result;
}

/// Every row ordinary, o = 0.5 and lse = 2, T_M = 2^-10 and T_S = 2^-12.
Expected plain_answer(const AttentionProblem& p) {
  const auto rows = static_cast<std::size_t>(p.batch * p.num_heads * p.q_len);
  Expected expected;
  expected.o = tensor(rows * static_cast<std::size_t>(p.v_head_dim), 0.5, 0x1p-10, 0x1p-12);
  expected.lse = tensor(rows, 2, 0x1p-10, 0x1p-12);
  expected.rows.assign(rows, RowKind::ordinary);
  expected.vagueness.assign(rows, 0);
  expected.has_tolerance = true;
  return expected;
}

/// b=1 hq=2 lq=3 dv=4: 6 rows, 24 elements of o.
const AttentionProblem kProblem = problem("hq=2 lq=3 lk=5 d=4");

CaseResult judge_o(const Expected& expected, const std::vector<double>& actual, bool generic = true,
                   const AttentionProblem& p = kProblem) {
  return judge_values(p, expected, Output::o, actual, generic);
}

TEST(Judge, RightValuesPass) {
  const Expected expected = plain_answer(kProblem);
  const CaseResult result = judge_o(expected, expected.o.value);
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(result.elements_compared, 24);
  EXPECT_EQ(result.worst_ratio, 0);
  EXPECT_EQ(result.ratio_output, "o");
  EXPECT_FALSE(result.worst);
}

TEST(Judge, FindsExactlyThePlantedElements) {
  const Expected expected = plain_answer(kProblem);
  for (std::size_t flat = 0; flat < 24; ++flat) {
    std::vector<double> actual = expected.o.value;
    actual[flat] += 0x1p-9;
    actual[(flat + 5) % 24] -= 0x1p-8;
    const CaseResult result = judge_o(expected, actual);
    EXPECT_EQ(result.verdict, Verdict::fail);
    EXPECT_EQ(result.reason, Reason::wrong_value);
    EXPECT_EQ(result.elements_failed, 2);
    std::vector<std::uint32_t> wrong{static_cast<std::uint32_t>(flat),
                                     static_cast<std::uint32_t>((flat + 5) % 24)};
    std::sort(wrong.begin(), wrong.end());
    EXPECT_EQ(result.failed_elements, wrong);
    ASSERT_TRUE(result.worst);
    const auto worst = static_cast<std::int64_t>((flat + 5) % 24);
    EXPECT_EQ(result.worst->index,
              (std::vector<std::int64_t>{0, worst / 12, worst / 4 % 3, worst % 4}));
    EXPECT_EQ(result.worst->tensor, "o");
    EXPECT_EQ(result.worst->ratio, 16);  // 2^-8 / 2^-12
    EXPECT_EQ(result.worst_ratio, 16);
    EXPECT_EQ(result.worst->expected, 0.5);
    EXPECT_EQ(result.worst->actual, 0.5 - 0x1p-8);
    EXPECT_EQ(result.worst->tolerance, 0x1p-12);
    EXPECT_FALSE(result.detail.empty());
  }
}

TEST(Judge, TheIndexIsTheLogicalOne) {
  const AttentionProblem p = problem("b=2 hq=4 lq=3 lk=5 d=7");
  const Expected expected = plain_answer(p);
  std::vector<double> o = expected.o.value;
  o[((1 * 4 + 2) * 3 + 1) * 7 + 6] = 0;
  EXPECT_EQ(judge_o(expected, o, true, p).worst->index, (std::vector<std::int64_t>{1, 2, 1, 6}));
  std::vector<double> lse = expected.lse.value;
  lse[(1 * 4 + 2) * 3 + 1] = 0;
  EXPECT_EQ(judge_values(p, expected, Output::lse, lse, true).worst->index,
            (std::vector<std::int64_t>{1, 2, 1}));
}

TEST(Judge, SaysWhatIsWrongInOneSentence) {
  Expected expected = plain_answer(kProblem);
  std::vector<double> actual = expected.o.value;
  actual[4] = 0.25;
  EXPECT_EQ(judge_o(expected, actual).detail,
            "o[0,0,1,0] is 0.25, expected 0.5: off by 1.02e+03 times the tolerance");
  actual[4] = kNan;
  EXPECT_EQ(judge_o(expected, actual).detail, "o[0,0,1,0] is nan where 0.5 is expected");
  expected.o.t_mixed[4] = expected.o.t_stat[4] = expected.o.value[4] = 0;
  actual[4] = 0.25;
  EXPECT_EQ(judge_o(expected, actual).detail, "o[0,0,1,0] is 0.25 and must be 0 exactly");
  expected.rows.assign(6, RowKind::outside_domain);
  EXPECT_EQ(judge_o(expected, actual).detail, "every row lies outside what can be judged by value");
}

TEST(Judge, TheToleranceItselfIsAllowedAndTheNextNumberIsNot) {
  const Expected expected = plain_answer(kProblem);
  std::vector<double> actual = expected.o.value;
  actual[7] = 0.5 + 0x1p-12;
  EXPECT_EQ(judge_o(expected, actual).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, actual).worst_ratio, 1);
  actual[7] = std::nextafter(0.5 + 0x1p-12, 1.0);
  EXPECT_EQ(judge_o(expected, actual).verdict, Verdict::fail);
  actual[7] = 0.5 - 0x1p-12;
  EXPECT_EQ(judge_o(expected, actual).verdict, Verdict::pass);
}

TEST(Judge, BetweenStatisticalAndMixedToleranceDependsOnTheData) {
  const Expected expected = plain_answer(kProblem);
  std::vector<double> actual = expected.o.value;
  actual[3] = 0.5 + 0x1p-11;
  EXPECT_EQ(judge_o(expected, actual, true).verdict, Verdict::fail);
  const CaseResult structured = judge_o(expected, actual, false);
  EXPECT_EQ(structured.verdict, Verdict::warn);
  EXPECT_EQ(structured.elements_failed, 0);
  ASSERT_TRUE(structured.worst);
  EXPECT_EQ(structured.worst->ratio, 2);
  actual[3] = 0.5 + 0x1p-9;
  EXPECT_EQ(judge_o(expected, actual, false).verdict, Verdict::fail);
}

TEST(Judge, ANanNeverPasses) {
  Expected expected = plain_answer(kProblem);
  for (const double tolerance : {0x1p-12, 0.0, kInfinity, kNan}) {
    expected.o.t_mixed.assign(24, tolerance);
    expected.o.t_stat.assign(24, tolerance);
    for (const double leak : {kNan, -kNan, kInfinity, -kInfinity}) {
      std::vector<double> actual = expected.o.value;
      actual[23] = leak;
      actual[0] += 1;
      const CaseResult result = judge_o(expected, actual);
      EXPECT_EQ(result.verdict, Verdict::fail) << leak << " " << tolerance;
      EXPECT_EQ(result.reason, Reason::nan_leak);
      ASSERT_TRUE(result.worst);
      EXPECT_EQ(result.worst->index, (std::vector<std::int64_t>{0, 1, 2, 3}));
      const bool sum_is_wrong = !(1 <= tolerance);
      EXPECT_EQ(result.also.size(), sum_is_wrong ? 1u : 0u);
    }
  }
  // A tolerance that is not a number allows nothing.
  expected.o.t_mixed.assign(24, kNan);
  expected.o.t_stat.assign(24, kNan);
  std::vector<double> actual = expected.o.value;
  actual[1] += 1e-30 + 0.25;
  EXPECT_EQ(judge_o(expected, actual).verdict, Verdict::fail);
}

TEST(Judge, TheLowPartOfTheExpectedValueCounts) {
  const AttentionProblem p = problem("dtype=f64");
  Expected expected = plain_answer(p);
  expected.o.low[0] = 0x1p-55;
  expected.o.t_mixed[0] = expected.o.t_stat[0] = 0x1p-56;
  EXPECT_EQ(judge_o(expected, {0.5}, true, p).verdict, Verdict::fail);
  EXPECT_EQ(judge_o(expected, {0.5}, true, p).worst->ratio, 2);
  expected.o.low[0] = 0x1p-57;
  EXPECT_EQ(judge_o(expected, {0.5}, true, p).verdict, Verdict::pass);
}

TEST(Judge, AnInfinityIsRightOnlyWhereTheValueRoundsToIt) {
  AttentionProblem p = problem("dtype=f16");
  Expected expected = plain_answer(p);
  expected.o.value[0] = 65519;  // rounds to 65504, the next number up, 65520, to infinity
  expected.o.t_mixed[0] = expected.o.t_stat[0] = 0.5;
  EXPECT_EQ(judge_o(expected, {kInfinity}, true, p).verdict, Verdict::fail);
  expected.o.t_mixed[0] = expected.o.t_stat[0] = 16;
  EXPECT_EQ(judge_o(expected, {kInfinity}, true, p).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, {65504}, true, p).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, {-kInfinity}, true, p).verdict, Verdict::fail);
  expected.o.value[0] = 80000;
  EXPECT_EQ(judge_o(expected, {kInfinity}, true, p).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, {65504}, true, p).verdict, Verdict::fail);
  expected.o.value[0] = 100;
  expected.o.t_mixed[0] = expected.o.t_stat[0] = 1e6;
  EXPECT_EQ(judge_o(expected, {kInfinity}, true, p).verdict, Verdict::fail);
}

TEST(Judge, EmptyAndPaddingRowsAreExact) {
  for (const RowKind kind : {RowKind::empty, RowKind::padding}) {
    Expected expected = plain_answer(kProblem);
    expected.rows[4] = kind;
    for (std::size_t flat = 16; flat < 20; ++flat) {
      expected.o.value[flat] = 0;
      expected.o.t_mixed[flat] = expected.o.t_stat[flat] = 0;
    }
    expected.lse.value[4] = -kInfinity;
    expected.lse.t_mixed[4] = expected.lse.t_stat[4] = 0;
    std::vector<double> o = expected.o.value;
    o[17] = -0.0;
    EXPECT_EQ(judge_o(expected, o).verdict, Verdict::pass);
    o[17] = 0x1p-1074;
    EXPECT_EQ(judge_o(expected, o).reason, Reason::wrong_value);
    EXPECT_EQ(judge_o(expected, o).failed_elements, std::vector<std::uint32_t>{17});
    o[17] = kNan;
    EXPECT_EQ(judge_o(expected, o).reason, Reason::nan_leak);

    const auto judge_lse = [&](double value) {
      std::vector<double> lse = expected.lse.value;
      lse[4] = value;
      return judge_values(kProblem, expected, Output::lse, lse, true);
    };
    EXPECT_EQ(judge_lse(-kInfinity).verdict, Verdict::pass);
    EXPECT_EQ(judge_lse(-kInfinity).elements_compared, 6);
    for (const double wrong : {kInfinity, kNan, 0.0, -3.4e38}) {
      EXPECT_EQ(judge_lse(wrong).verdict, Verdict::fail) << wrong;
      EXPECT_EQ(judge_lse(wrong).worst->index, (std::vector<std::int64_t>{0, 1, 1}));
    }
  }
}

TEST(Judge, ConventionsOfEmptyRows) {
  AttentionProblem p = problem("lq=2 dv=2 d=2");
  Expected expected = plain_answer(p);
  expected.rows = {RowKind::empty, RowKind::ordinary};
  std::vector<double> actual = expected.o.value;

  p.empty_output = EmptyOutput::nan;
  expected.o.value[0] = expected.o.value[1] = kNan;
  actual[0] = actual[1] = kNan;
  EXPECT_EQ(judge_o(expected, actual, true, p).verdict, Verdict::pass);
  actual[1] = 0;
  EXPECT_EQ(judge_o(expected, actual, true, p).reason, Reason::wrong_value);

  p.empty_output = EmptyOutput::unspecified;
  EXPECT_EQ(judge_o(expected, actual, true, p).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, actual, true, p).elements_compared, 2);

  p.empty_lse = EmptyLse::unspecified;
  EXPECT_EQ(judge_values(p, expected, Output::lse, {kNan, 2}, true).verdict, Verdict::pass);
  p.empty_lse = EmptyLse::zero;
  expected.lse.value[0] = 0;
  expected.lse.t_mixed[0] = expected.lse.t_stat[0] = 0;
  EXPECT_EQ(judge_values(p, expected, Output::lse, {kNan, 2}, true).reason, Reason::nan_leak);
  EXPECT_EQ(judge_values(p, expected, Output::lse, {0, 2}, true).verdict, Verdict::pass);
}

TEST(Judge, RowsOfFiniteMaskValuesMayBeAnAverageOrEmpty) {
  const AttentionProblem p = problem("lq=1 lk=2 d=1 dv=2 bias=lowest");
  Expected expected = plain_answer(p);
  expected.rows = {RowKind::lowest_only};
  expected.o_low = {-1, 2};
  expected.o_high = {1, 3};
  const auto verdict_of = [&](double first, double second) {
    return judge_o(expected, {first, second}, true, p).verdict;
  };
  EXPECT_EQ(verdict_of(0.25, 2.5), Verdict::pass);
  EXPECT_EQ(verdict_of(1 + 0x1p-12, 2 - 0x1p-12), Verdict::pass);
  EXPECT_EQ(verdict_of(0, 0), Verdict::pass);  // the empty-row value
  EXPECT_EQ(verdict_of(1.01, 2.5), Verdict::fail);
  EXPECT_EQ(verdict_of(0.5, 1.5), Verdict::fail);
  EXPECT_EQ(verdict_of(0.5, kNan), Verdict::fail);
  EXPECT_EQ(judge_o(expected, {0.5, kNan}, true, p).detail,
            "o[0,0,0,1] is nan in a row of finite mask values alone, where an average of v is "
            "expected: 2 to 3");
  EXPECT_EQ(judge_values(p, expected, Output::lse, {kNan}, true).verdict, Verdict::not_judged);
}

TEST(Judge, RowsOutsideTheDomainAreNotJudged) {
  Expected expected = plain_answer(kProblem);
  const std::vector<double> nonsense(24, kNan);
  expected.rows.assign(6, RowKind::unspecified);
  expected.rows[2] = RowKind::outside_domain;
  const CaseResult result = judge_o(expected, nonsense);
  EXPECT_EQ(result.verdict, Verdict::not_judged);
  EXPECT_EQ(result.elements_compared, 0);
  EXPECT_TRUE(result.ratio_output.empty());
  expected.rows[5] = RowKind::ordinary;
  EXPECT_EQ(judge_o(expected, nonsense).verdict, Verdict::fail);
  EXPECT_EQ(judge_o(expected, nonsense).elements_failed, 4);
}

TEST(Judge, VagueRowsConvictButDoNotCount) {
  Expected expected = plain_answer(kProblem);
  expected.vagueness.assign(6, 0.2);
  expected.vagueness[0] = 0.1;
  EXPECT_EQ(judge_o(expected, expected.o.value).elements_compared, 4);
  expected.vagueness[0] = kNan;
  EXPECT_EQ(judge_o(expected, expected.o.value).verdict, Verdict::not_judged);
  std::vector<double> actual = expected.o.value;
  actual[9] = 7;
  EXPECT_EQ(judge_o(expected, actual).verdict, Verdict::fail);
}

TEST(Judge, NothingToCompareIsAPass) {
  const AttentionProblem p = problem("lq=0 lk=3 d=2");
  const CaseResult result = judge_o(plain_answer(p), {}, true, p);
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(result.elements_compared, 0);
  const AttentionProblem no_values = problem("lq=2 lk=3 d=2 dv=0");
  EXPECT_EQ(judge_o(plain_answer(no_values), {}, true, no_values).verdict, Verdict::pass);
}

TEST(Judge, ListsAtMost4096Elements) {
  const AttentionProblem p = problem("lq=100 lk=3 d=64");
  const Expected expected = plain_answer(p);
  const CaseResult result = judge_o(expected, std::vector<double>(6400, 9.0), true, p);
  EXPECT_EQ(result.elements_failed, 6400);
  EXPECT_EQ(result.failed_elements.size(), 4096u);
}

TEST(Judge, SinkRowsAllowTheirRounding) {
  const AttentionProblem p = problem("lk=0 sink=normal");
  Expected expected = plain_answer(p);
  expected.rows = {RowKind::empty_sink};
  expected.o = tensor(1, 0, 0, 0);
  EXPECT_EQ(judge_o(expected, {0.0}, true, p).verdict, Verdict::pass);
  EXPECT_EQ(judge_o(expected, {1e-300}, true, p).verdict, Verdict::fail);
  EXPECT_EQ(judge_values(p, expected, Output::lse, {2 + 0x1p-13}, true).verdict, Verdict::pass);
  EXPECT_EQ(judge_values(p, expected, Output::lse, {2 + 0x1p-9}, true).verdict, Verdict::fail);
}

}  // namespace
}  // namespace attest
