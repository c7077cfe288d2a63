// SPDX-License-Identifier: Apache-2.0
#include "harness/pace.hpp"

#include <gtest/gtest.h>

#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

/// Every call takes as long.
class PacedSubject final : public FakeSubject {
 public:
  explicit PacedSubject(double seconds) : FakeSubject(kFakeDeclaration), seconds_(seconds) {}
  CallStatus call(const PlacedCall&, const CallLimits&) override {
    CallStatus status;
    status.elapsed_seconds = seconds_;
    return status;
  }

 private:
  double seconds_;
};

TEST(Pace, IsMeasuredOnOneSmallProblem) {
  PacedSubject slow(2);
  EXPECT_DOUBLE_EQ(triples_within(slow, 0.5), 0.25 * 48 * 48 * (16 + 16));
  PacedSubject quick(2e-6);
  EXPECT_DOUBLE_EQ(triples_within(quick, 0.5), 0.25e6 * 48 * 48 * (16 + 16));
}

TEST(Pace, ProblemsBeyondItAreNotJudged) {
  RunOptions options = fake_options({&kHonest});
  const Record whole = run_fake(options);
  EXPECT_EQ(whole.counts.not_judged, 0);
  options.open = [](OpenError&) { return std::make_unique<PacedSubject>(2); };
  options.most_call_seconds = 0.5;
  const Record slow = run_fake(options);
  EXPECT_GT(slow.counts.not_judged, 0);
  EXPECT_GT(slow.counts.pass, 0);
  EXPECT_EQ(slow.counts.not_judged + slow.counts.pass, whole.counts.pass);
  EXPECT_EQ(slow.verdict, SuiteVerdict::conformant);
}

}  // namespace
}  // namespace attest
