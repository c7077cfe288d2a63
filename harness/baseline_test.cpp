// SPDX-License-Identifier: Apache-2.0
#include "harness/baseline.hpp"

#include <gtest/gtest.h>

#include "harness/outcome.hpp"

namespace attest {
namespace {

/// One cause of one failure.
void add_cause(Record& record, const std::string& requirement, const std::string& case_line,
               const std::string& sentence, std::vector<std::string> features = {},
               Reason reason = Reason::wrong_value, Verdict verdict = Verdict::fail) {
  Cause cause;
  cause.id = static_cast<int>(record.causes.size()) + 1;
  cause.verdict = verdict;
  cause.reason = reason;
  cause.sentence = sentence;
  cause.features = std::move(features);
  cause.smallest = static_cast<int>(record.failures.size());
  Failure failure;
  failure.cause = cause.id;
  failure.requirement = requirement;
  failure.case_line = case_line;
  failure.verdict = verdict;
  failure.reason = reason;
  record.causes.push_back(cause);
  record.failures.push_back(failure);
}

Record with_one_cause() {
  Record record;
  record.verdict = SuiteVerdict::not_conformant;
  add_cause(record, "ORACLE-O", "attention.forward lk=2", "wrong o where base=causal", {"causal"});
  return record;
}

TEST(Baseline, TheSameCaseIsKnownWhoeverCatchesIt) {
  const Record baseline = with_one_cause();
  Record record;
  add_cause(record, "MASK-VISIBLE", "attention.forward lk=2", "wrong o");
  hold_against(baseline, "b.json", true, record);
  EXPECT_TRUE(record.causes[0].known);
  EXPECT_EQ(record.baseline.path, "b.json");
  EXPECT_EQ(record.baseline.known, 1);
  EXPECT_EQ(record.baseline.fresh, 0);
  EXPECT_TRUE(record.baseline.gone.empty());
}

TEST(Baseline, TheSameSentenceOrFeaturesOfTheSameRequirementAreKnown) {
  const Record baseline = with_one_cause();
  Record record;
  add_cause(record, "ORACLE-O", "attention.forward lk=3", "wrong o where base=causal", {"gqa"});
  add_cause(record, "ORACLE-O", "attention.forward lk=4", "wrong o where d > 32", {"causal"});
  add_cause(record, "ORACLE-LSE", "attention.forward lk=3", "wrong o where base=causal",
            {"causal"});
  hold_against(baseline, "b.json", true, record);
  EXPECT_TRUE(record.causes[0].known);
  EXPECT_TRUE(record.causes[1].known);
  EXPECT_FALSE(record.causes[2].known) << "another requirement";
}

TEST(Baseline, AnotherReasonOrVerdictOnTheSameCaseIsNew) {
  const Record baseline = with_one_cause();
  Record record;
  add_cause(record, "ORACLE-O", "attention.forward lk=2", "NaN in o", {"causal"}, Reason::nan_leak);
  add_cause(record, "ORACLE-O", "attention.forward lk=2", "crashes", {"causal"}, Reason::none,
            Verdict::crash);
  hold_against(baseline, "b.json", true, record);
  EXPECT_EQ(record.baseline.fresh, 2);
  ASSERT_EQ(record.baseline.gone.size(), 1u);
  EXPECT_EQ(record.baseline.gone[0], "wrong o where base=causal");
}

TEST(Baseline, HavingNoFeaturesInCommonWithAnythingIsNoLikeness) {
  Record baseline;
  add_cause(baseline, "ORACLE-O", "attention.forward lk=65", "wrong o where lk > 64");
  Record record;
  add_cause(record, "ORACLE-O", "attention.forward d=3", "wrong o where odd d");
  hold_against(baseline, "b.json", true, record);
  EXPECT_FALSE(record.causes[0].known);
}

TEST(Baseline, WhatWasNotLookedForIsNotGone) {
  Record record;
  hold_against(with_one_cause(), "b.json", false, record);
  EXPECT_TRUE(record.baseline.gone.empty());
}

TEST(Baseline, WarningsAreNeitherKnownNorNew) {
  Record baseline;
  add_cause(baseline, "ORACLE-O", "attention.forward", "came once", {}, Reason::flaky,
            Verdict::warn);
  Record record = baseline;
  hold_against(baseline, "b.json", true, record);
  EXPECT_EQ(record.baseline.known + record.baseline.fresh, 0);
  hold_against(baseline, "b.json", true, record = Record());
  EXPECT_TRUE(record.baseline.gone.empty());
}

TEST(Baseline, OnlyNewCausesFailTheRun) {
  const Record baseline = with_one_cause();
  Record record = with_one_cause();
  EXPECT_EQ(exit_code(record), ExitCode::failed);
  hold_against(baseline, "b.json", true, record);
  EXPECT_EQ(exit_code(record), ExitCode::conformant);
  // A kernel that refuses nearly everything is no pass because its failures are known.
  record.scope.refused_share = 0.9;
  EXPECT_EQ(exit_code(record), ExitCode::too_little_tested);
  record.scope.refused_share = 0;
  record.expectations.push_back({"fail ORACLE-O * wrong_value - why", 1, "stale"});
  EXPECT_EQ(exit_code(record), ExitCode::failed);
  record.expectations.clear();
  add_cause(record, "ORACLE-LSE", "attention.forward lk=9", "wrong lse");
  EXPECT_EQ(exit_code(record), ExitCode::failed);
  record.failures.back().expected = true;
  EXPECT_EQ(exit_code(record), ExitCode::conformant);
  record.verdict = SuiteVerdict::incomplete;
  EXPECT_EQ(exit_code(record), ExitCode::suite_failed);
}

}  // namespace
}  // namespace attest
