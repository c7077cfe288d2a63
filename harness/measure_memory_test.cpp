// SPDX-License-Identifier: Apache-2.0
#include "harness/measure_memory.hpp"

#include <gtest/gtest.h>

#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

/// Says that every call had `bytes`, or does not return at all.
class MeasuredSubject : public FakeSubject {
 public:
  using FakeSubject::FakeSubject;
  void restart() override { ++restarts; }
  CallStatus call(const PlacedCall& call, const CallLimits&) override {
    EXPECT_EQ(call.scalars.operation, static_cast<int>(Operation::backward));
    CallStatus status;
    status.peak_bytes = bytes;
    if (hangs) status.accident = Accident{Verdict::hang, Reason::none, "no answer"};
    return status;
  }
  std::optional<std::uint64_t> bytes;
  bool hangs = false;
  int restarts = 0;
};

std::vector<std::string> calls_of(const char* declaration) {
  std::vector<std::string> lines;
  for (const AttentionProblem& call : measured_calls(*parse_declaration(declaration)))
    lines.push_back(print_case(call));
  return lines;
}

TEST(MeasuredCalls, AreLongerWhereMemoryIsPromisedToBeLinear) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(calls_of("dtype=bf16,f32 base=full,causal align=bottom_right lse backward "
                     "memory=linear"),
            Lines{"attention.backward lq=8192 lk=8192 d=64 base=causal"});
  EXPECT_EQ(calls_of("dtype=bf16 head_dim=8..48%8 backward"),
            (Lines{"attention.backward dtype=bf16 lq=2048 lk=2048 d=48 lse=0",
                   "attention.backward dtype=bf16 lq=4096 lk=4096 d=48 lse=0"}));
  EXPECT_EQ(calls_of("dtype=f32 backward max_q_len=3000"),
            Lines{"attention.backward lq=2048 lk=2048 d=64 lse=0"});
  EXPECT_EQ(calls_of("dtype=f32"), Lines{});
}

TEST(MeasureMemory, SaysWhatTheCallTook) {
  MeasuredSubject subject("dtype=f32 backward");
  subject.bytes = 12345;
  CaseContext context(subject);
  const AttentionProblem problem = measured_calls(subject.declaration()).front();
  std::string trouble;
  const auto memory = measure_memory(context, problem, trouble);
  ASSERT_TRUE(memory) << trouble;
  EXPECT_EQ(memory->operation, "backward");
  EXPECT_EQ(memory->q_len, 2048);
  EXPECT_EQ(memory->kv_len, 2048);
  EXPECT_EQ(memory->tensor_bytes, 8 * 2048 * 64 * 4);  // q, k, v, o and their gradients
  EXPECT_EQ(memory->extra_bytes, 12345);
  EXPECT_EQ(*parse_case(memory->case_line), problem);
  EXPECT_GE(subject.restarts, 1);
}

TEST(MeasureMemory, SaysNothingWhereNothingIsMeasured) {
  MeasuredSubject subject("dtype=f32 backward");
  CaseContext context(subject);
  std::string trouble = "old";
  EXPECT_FALSE(measure_memory(context, measured_calls(subject.declaration()).front(), trouble));
  EXPECT_EQ(trouble, "");
  subject.hangs = true;
  EXPECT_FALSE(measure_memory(context, measured_calls(subject.declaration()).front(), trouble));
  EXPECT_EQ(trouble, "no answer");
}

Record run_of(const std::string& suite, int shard = 1, bool hangs = false) {
  RunOptions options = fake_options({&kHonest});
  options.suite = suite;
  options.shard = {shard, 2};
  options.open = [hangs](OpenError&) {
    auto subject = std::make_unique<MeasuredSubject>("dtype=f32 features=all backward=all");
    subject->bytes = 1;
    subject->hangs = hangs;
    return subject;
  };
  return run_fake(options);
}

TEST(MeasureMemory, IsOncePerRunThatHasTheTime) {
  EXPECT_EQ(run_of("quick").memory.size(), 2u);
  EXPECT_EQ(run_of("quick", 2).memory.size(), 0u);
  EXPECT_EQ(run_of("smoke").memory.size(), 0u);
}

TEST(MeasureMemory, ThatFailsIsANoteOfTheRecord) {
  const Record record = run_of("quick", 1, true);
  EXPECT_EQ(record.memory.size(), 0u);
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_EQ(record.notes[0],
            "the memory of 'attention.backward lq=2048 lk=2048 d=64 base=causal' was not measured: "
            "no answer");
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
}

}  // namespace
}  // namespace attest
