// SPDX-License-Identifier: Apache-2.0
#include "harness/outcome.hpp"

#include <gtest/gtest.h>

#include "harness/tally.hpp"

namespace attest {
namespace {

TEST(SuiteVerdict, AnAuditThatFailsIsNeverAPass) {
  Record record;
  record.counts.pass = 1000;
  EXPECT_EQ(suite_verdict(record, 1000), SuiteVerdict::conformant);
  record.audit.outside = 1;
  EXPECT_EQ(suite_verdict(record, 1000), SuiteVerdict::incomplete);
  record.verdict = SuiteVerdict::incomplete;
  EXPECT_EQ(exit_code(record), ExitCode::suite_failed);
}

TEST(SuiteVerdict, NothingJudgedIsNeverAPass) {
  Record record;
  EXPECT_EQ(suite_verdict(record, 0), SuiteVerdict::too_little_tested);
  record.counts.not_judged = 5000;
  EXPECT_EQ(suite_verdict(record, 5000), SuiteVerdict::too_little_tested);
  record.counts.pass = 99;
  EXPECT_EQ(suite_verdict(record, 5000), SuiteVerdict::too_little_tested);
  record.counts.pass = 100;
  EXPECT_EQ(suite_verdict(record, 5000), SuiteVerdict::conformant);
  record.scope.refused_share = 0.51;
  EXPECT_EQ(suite_verdict(record, 5000), SuiteVerdict::too_little_tested);
}

TEST(Replay, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(replay_command("attention.forward lq=2", "./libmine.so#fast", "ORACLE-O"),
            "attest replay 'attention.forward lq=2' ./libmine.so#fast --requirement ORACLE-O");
  EXPECT_EQ(replay_command("attention.forward", "/a b/it's.so", "X"),
            "attest replay 'attention.forward' '/a b/it'\\''s.so' --requirement X");
}

}  // namespace
}  // namespace attest
