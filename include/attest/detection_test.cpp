// SPDX-License-Identifier: Apache-2.0
#include "attest/detection.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

Detection kernel(const std::string& id, const std::string& dtype, Outcome outcome,
                 const std::vector<std::string>& catches = {}, double seconds = 0) {
  Detection one;
  one.id = id;
  one.dtype = dtype;
  one.outcome = outcome;
  one.base = "honest";
  one.honest = outcome == Outcome::accepted || outcome == Outcome::accused;
  for (const std::string& requirement : catches) {
    one.catches.push_back({});
    one.catches.back().requirement = requirement;
    one.catches.back().seconds = seconds;
  }
  return one;
}

DetectionReport sample() {
  DetectionReport report;
  report.kernels = {kernel("honest", "f32", Outcome::accepted),
                    kernel("honest", "bf16", Outcome::accepted),
                    kernel("a", "f32", Outcome::caught, {"ORACLE-O", "MASK-NOLEAK"}, 1),
                    kernel("a", "bf16", Outcome::caught, {"ORACLE-O"}, 3),
                    kernel("b", "f32", Outcome::caught, {"ORACLE-LSE"}, 8)};
  report.kernels[2].minimal = {{"ORACLE-O", "", "", "", 2, true, true}};
  report.kernels[4].minimal = {{"ORACLE-LSE", "", "", "", 5, false, true}};
  return report;
}

TEST(Detection, CountsFaultsByIdAndByDtype) {
  const DetectionTotals totals = detection_totals(sample());
  EXPECT_EQ(totals.faults, 2);
  EXPECT_EQ(totals.caught, 2);
  EXPECT_EQ(totals.fault_kernels, 3);
  EXPECT_EQ(totals.fault_kernels_caught, 3);
  EXPECT_EQ(totals.honest, 1);
  EXPECT_EQ(totals.honest_kernels, 2);
  EXPECT_EQ(totals.accused, 0);
  // b is caught by agreement with the oracle alone.
  EXPECT_EQ(totals.caught_beyond_oracle, 1);
  EXPECT_EQ(totals.median_seconds, 3);
  EXPECT_EQ(totals.slowest_seconds, 8);
  EXPECT_EQ(totals.minimal_cases, 2);
  EXPECT_EQ(totals.minimal_failing_again, 1);
  EXPECT_EQ(totals.median_pairs, 3.5);
  EXPECT_TRUE(totals.perfect());
  EXPECT_EQ(detection_score(sample()), "caught 2 of 2 faults, accused 0 of 1 honest kernels");
}

TEST(Detection, GridsAndNeedlesAreAgreementWithTheOracleToo) {
  DetectionReport report = sample();
  report.kernels[4].catches.push_back({.requirement = "SIZE-GRID"});
  EXPECT_EQ(detection_totals(report).caught_beyond_oracle, 1);
  report.kernels[4].catches.push_back({.requirement = "LAW-SHIFT"});
  EXPECT_EQ(detection_totals(report).caught_beyond_oracle, 2);
}

TEST(Detection, KnowsWhichRequirementsOfDecodeCallsCompareWithTheOracle) {
  for (const char* id : {"CACHE-O", "CACHE-LSE", "CACHE-GRID", "CACHE-SIZES", "CACHE-NEEDLE",
                         "CACHE-ORDER", "ORACLE-O", "GRAD-SLOPES"})
    EXPECT_TRUE(compares_with_oracle(id)) << id;
  for (const char* id : {"CACHE-APPEND", "CACHE-FORWARD", "CACHE-PAGES", "CACHE-STEPS", "CACHE-",
                         "CACHE", "CACHE-BOUNDS", "LAW-SHIFT"})
    EXPECT_FALSE(compares_with_oracle(id)) << id;
}

TEST(Detection, ForgivesNoDtype) {
  DetectionReport report = sample();
  report.kernels[3].outcome = Outcome::escaped;
  EXPECT_EQ(detection_score(report), "caught 1 of 2 faults, accused 0 of 1 honest kernels");
  EXPECT_FALSE(detection_totals(report).perfect());
  report.kernels[3].outcome = Outcome::unreachable;
  EXPECT_EQ(detection_totals(report).unreachable_kernels, 1);
  EXPECT_FALSE(detection_totals(report).perfect());
}

TEST(Detection, LeavesOutWhatIsOutOfScope) {
  DetectionReport report = sample();
  report.within = "dtype=f32";
  report.kernels[3].outcome = Outcome::out_of_scope;
  report.kernels[4].outcome = Outcome::out_of_scope;
  EXPECT_EQ(detection_score(report),
            "caught 1 of 1 planted bugs in that scope, accused 0 of 1 honest kernels");
  EXPECT_EQ(detection_totals(report).out_of_scope_kernels, 2);
  EXPECT_TRUE(detection_totals(report).perfect());
}

TEST(Detection, CountsAnAccusedBaseOnce) {
  DetectionReport report = sample();
  report.kernels[1].outcome = Outcome::accused;
  report.kernels[4].accusations = {"honest.f32, the base of b: ..."};
  EXPECT_EQ(detection_totals(report).accused, 1);
  EXPECT_EQ(detection_totals(report).honest_kernels_accused, 1);
  EXPECT_FALSE(detection_totals(report).perfect());
  report.kernels[1].outcome = Outcome::accepted;
  EXPECT_EQ(detection_score(report), "caught 2 of 2 faults, accused 1 of 1 honest kernels");
}

TEST(Detection, HasAStableNameForEveryOutcome) {
  for (const Outcome outcome : {Outcome::caught, Outcome::escaped, Outcome::unreachable,
                                Outcome::out_of_scope, Outcome::accepted, Outcome::accused})
    EXPECT_EQ(parse_outcome(name(outcome)), outcome);
  EXPECT_EQ(parse_outcome("lost"), std::nullopt);
}

}  // namespace
}  // namespace attest
