// SPDX-License-Identifier: Apache-2.0
// Runs in which something comes and goes: the machine, or the kernel's answers.
#include <gtest/gtest.h>

#include "harness/fake_run_test.hpp"
#include "harness/runner.hpp"

namespace attest {
namespace {

// Behaviour over time, for checks that are plain functions.
std::atomic<int> g_calls{0};

CaseResult check_error_once(CaseContext&, const AttentionProblem&) {
  return g_calls++ == 7 ? fake_failure(Reason::none, "host lost", Verdict::error) : CaseResult{};
}
CaseResult check_error_always(CaseContext&, const AttentionProblem&) {
  return g_calls++ >= 7 ? fake_failure(Reason::none, "host lost", Verdict::error) : CaseResult{};
}

TEST(Runner, TroubleOfTheMachineIsTriedAgainThenEndsTheRun) {
  g_calls = 0;
  const Requirement once{.id = "E", .sentence = "s", .check = check_error_once};
  Record record = run_fake(fake_options({&once}));
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  EXPECT_EQ(record.counts.pass, kProblems);
  EXPECT_EQ(record.counts.error, 0);

  g_calls = 0;
  const Requirement always{.id = "E", .sentence = "s", .check = check_error_always};
  record = run_fake(fake_options({&always}));
  EXPECT_EQ(record.verdict, SuiteVerdict::incomplete);
  EXPECT_EQ(exit_code(record), ExitCode::suite_failed);
  EXPECT_EQ(record.scope.cut, cut_after(8, kProblems) + ", trouble of the machine");
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_EQ(record.notes[0].find("the run could not go on: host lost, on E attention.forward"), 0u)
      << record.notes[0];
}

CaseResult check_error_after_the_list_once(CaseContext&, const AttentionProblem&) {
  return g_calls++ == 1 ? fake_failure(Reason::none, "host lost", Verdict::error)
                        : fake_failure(Reason::wrong_value, "wrong");
}
CaseResult check_error_after_the_list(CaseContext&, const AttentionProblem&) {
  return g_calls++ >= 1 ? fake_failure(Reason::none, "host lost", Verdict::error)
                        : fake_failure(Reason::wrong_value, "wrong");
}

TEST(Runner, TroubleWhileShrinkingIsTriedAgainToo) {
  g_calls = 0;
  const Requirement once{.id = "E", .sentence = "s", .check = check_error_after_the_list_once};
  RunOptions options = fake_options({&once});
  options.cases_name = "one.txt";
  options.case_lines = {"attention.forward lq=2"};
  Record record = run_fake(options);
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  EXPECT_TRUE(record.notes.empty());
  EXPECT_EQ(parse_case(record.failures[0].case_line)->q_len, 1);

  g_calls = 0;
  const Requirement always{.id = "E", .sentence = "s", .check = check_error_after_the_list};
  options.requirements = {&always};
  record = run_fake(options);
  EXPECT_EQ(record.verdict, SuiteVerdict::incomplete);
  EXPECT_EQ(record.notes.at(0), "the run could not go on: host lost, on E attention.forward lq=2");
  // What was found stays in the record.
  ASSERT_EQ(record.failures.size(), 1u);
  EXPECT_EQ(record.failures[0].detail, "wrong");
}

TEST(Runner, AHostThatCannotStartIsTheMachinesFault) {
  RunOptions options = fake_options({&kHonest});
  int opened = 0;
  options.open = [&](OpenError& error) -> std::unique_ptr<Subject> {
    ++opened;
    error = {"the kernel host cannot start", true};
    return nullptr;
  };
  RunError error;
  EXPECT_FALSE(run_suite(options, {}, error));
  EXPECT_TRUE(error.machine);
  EXPECT_EQ(error.message, "the kernel host cannot start");
  EXPECT_EQ(opened, 2);
  options.open = [&](OpenError& refused) -> std::unique_ptr<Subject> {
    refused = {"no such library", false};
    return nullptr;
  };
  EXPECT_EQ(refusal(options), "no such library");
}

CaseResult check_fails_once(CaseContext&, const AttentionProblem&) {
  return g_calls++ == 20 ? fake_failure(Reason::wrong_value, "wrong") : CaseResult{};
}
CaseResult check_fails_in_half(CaseContext&, const AttentionProblem&) {
  return g_calls++ % 2 == 0 ? fake_failure(Reason::wrong_value, "wrong") : CaseResult{};
}
CaseResult check_fails_in_the_list(CaseContext&, const AttentionProblem&) {
  const int call = g_calls++;
  return call < kProblems && call % 40 == 0 ? fake_failure(Reason::wrong_value, "wrong")
                                            : CaseResult{};
}

TEST(Runner, OneFailureThatNeverComesBackIsAWarning) {
  g_calls = 0;
  const Requirement flaky{.id = "F", .sentence = "s", .check = check_fails_once};
  const Record record = run_fake(fake_options({&flaky}));
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  EXPECT_EQ(record.counts.warn, 1);
  EXPECT_EQ(record.counts.fail, 0);
  ASSERT_EQ(record.failures.size(), 1u);
  EXPECT_EQ(record.failures[0].reason, Reason::flaky);
  EXPECT_EQ(record.failures[0].verdict, Verdict::warn);
}

TEST(Runner, WhatFailsInSomeRerunsIsNotDeterministic) {
  g_calls = 0;
  const Requirement half{.id = "F", .sentence = "s", .check = check_fails_in_half};
  const Record record = run_fake(fake_options({&half}));
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  ASSERT_FALSE(record.failures.empty());
  EXPECT_EQ(record.failures[0].reason, Reason::not_deterministic);
  EXPECT_EQ(record.failures[0].reruns_failed, 1);
}

TEST(Runner, ManyFailuresThatNeverComeBackAreNoAccident) {
  g_calls = 0;
  const Requirement many{.id = "F", .sentence = "s", .check = check_fails_in_the_list};
  const Record record = run_fake(fake_options({&many}));
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  const Failure& last = record.failures.back();
  EXPECT_EQ(last.reason, Reason::not_deterministic);
  EXPECT_EQ(last.detail, std::to_string(kProblems / 40 - 3) +
                             " more cases failed, the first of them not again in 2 reruns");
}

// Hosts that die of SIGKILL. `deaths` says which calls: from the length of the keys, and the number
// of calls before.
using Deaths = bool (*)(std::int64_t kv_len, int call);

class MortalSubject final : public FakeSubject {
 public:
  explicit MortalSubject(Deaths deaths) : FakeSubject(kFakeDeclaration), deaths_(deaths) {}
  CallStatus call(const PlacedCall& call, const CallLimits&) override {
    CallStatus status;
    const std::int64_t kv_len = call.tensors[static_cast<std::size_t>(Slot::k)].shape[2];
    if (deaths_(kv_len, g_calls++))
      status.accident = Accident{Verdict::error, Reason::none, "killed", true};
    return status;
  }

 private:
  Deaths deaths_;
};

const Requirement kComesBack{
    .id = "K", .sentence = "s", .check = [](CaseContext& context, const AttentionProblem& problem) {
      const auto judged = judge_call(context.first(problem), context.declaration(), problem);
      return judged.value_or(CaseResult{});
    }};

Record run_mortal(Deaths deaths) {
  g_calls = 0;
  RunOptions options = fake_options({&kComesBack});
  options.open = [deaths](OpenError&) { return std::make_unique<MortalSubject>(deaths); };
  return run_fake(options);
}

TEST(Killed, NowAndThenChangesNothing) {
  const std::string whole = fingerprint(run_mortal([](std::int64_t, int) { return false; }));
  EXPECT_EQ(fingerprint(run_mortal([](std::int64_t, int call) { return call % 50 == 7; })), whole);
}

TEST(Killed, OnOneCaseAloneAndEveryTimeIsTheKernelsDoing) {
  const Record record = run_mortal([](std::int64_t kv_len, int) { return kv_len == 3; });
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  ASSERT_EQ(record.causes.size(), 1u);
  EXPECT_EQ(record.causes[0].verdict, Verdict::crash);
  const Failure& failure = record.failures[0];
  EXPECT_EQ(failure.case_line, "attention.forward lk=3 data=list q=0 k=0,0,0 v=0,0,0");
  EXPECT_NE(failure.detail.find("SIGKILL"), std::string::npos);
  EXPECT_EQ(failure.reruns_failed, failure.reruns);
}

TEST(Killed, WhateverIsCalledIsTheMachinesDoing) {
  const Record record = run_mortal([](std::int64_t, int) { return true; });
  EXPECT_EQ(record.verdict, SuiteVerdict::incomplete);
  EXPECT_EQ(exit_code(record), ExitCode::suite_failed);
  EXPECT_EQ(record.counts.failures(), 0);
  EXPECT_NE(record.notes.at(0).find("killed, on K attention.forward"), std::string::npos)
      << record.notes[0];
}

TEST(Killed, HalfOfTheTimeAccusesNobody) {
  const Record record = run_mortal([](std::int64_t, int call) {
    return (static_cast<std::uint64_t>(call) * 0x9e3779b97f4a7c15u >> 60) % 2 == 0;
  });
  EXPECT_EQ(record.counts.failures(), 0);
  EXPECT_TRUE(record.causes.empty());
}

}  // namespace
}  // namespace attest
