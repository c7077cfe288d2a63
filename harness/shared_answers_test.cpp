// SPDX-License-Identifier: Apache-2.0
#include "harness/shared_answers.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "harness/data.hpp"
#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

AttentionProblem problem_of_seed(std::uint64_t seed) {
  AttentionProblem problem;
  problem.q_len = problem.kv_len = 4;
  problem.head_dim = problem.v_head_dim = 8;
  problem.seed = seed;
  return problem;
}

PrecisionProfile f32() { return *precision_preset("f32", DType::f32); }

TEST(SharedAnswers, AreThoseThatEachKernelWouldHaveComputed) {
  SharedAnswers shared(1 << 20);
  const AttentionProblem problem = problem_of_seed(1);
  const AttentionInputs inputs = make_inputs(problem);
  EXPECT_EQ(shared.inputs(problem)->q.values, inputs.q.values);
  const Expected alone = expect(problem, inputs, f32());
  const auto answer = shared.expected(problem, f32());
  EXPECT_EQ(answer->o.value, alone.o.value);
  EXPECT_EQ(answer->lse.t_mixed, alone.lse.t_mixed);
  EXPECT_EQ(shared.expected(problem, f32()), answer) << "computed again";
}

TEST(SharedAnswers, TellPrecisionsProblemsAndValuesApart) {
  SharedAnswers shared(1 << 20);
  const AttentionProblem problem = problem_of_seed(1);
  const auto answer = shared.expected(problem, f32());
  PrecisionProfile coarse = f32();
  coarse.u_acc *= 2;
  EXPECT_GT(shared.expected(problem, coarse)->o.t_mixed[0], answer->o.t_mixed[0]);
  EXPECT_NE(shared.expected(problem_of_seed(2), f32())->o.value, answer->o.value);

  AttentionInputs other = *shared.inputs(problem);
  const auto same_values = shared.expected(problem, other, f32());
  EXPECT_EQ(same_values->o.value, answer->o.value);
  other.v.values[0] += 1;
  const auto other_values = shared.expected(problem, other, f32());
  EXPECT_NE(other_values->o.value, answer->o.value);
  EXPECT_EQ(shared.expected(problem, other, f32()), other_values);
  other.sink = Dense<double>({1, 1, 1, 1});
  EXPECT_NE(shared.expected(problem, other, f32()), other_values) << "a sink of 0 is a sink";
}

TEST(SharedAnswers, ForgetWhatWasAskedForLongestAgo) {
  SharedAnswers measure(1 << 20);
  measure.expected(problem_of_seed(1), f32());
  const std::size_t one = measure.held_bytes();
  ASSERT_GT(one, 0u);

  SharedAnswers shared(2 * one);
  const auto first = shared.expected(problem_of_seed(1), f32());
  const auto second = shared.expected(problem_of_seed(2), f32());
  EXPECT_EQ(shared.expected(problem_of_seed(1), f32()), first);
  shared.expected(problem_of_seed(3), f32());
  EXPECT_EQ(shared.expected(problem_of_seed(1), f32()), first);
  EXPECT_NE(shared.expected(problem_of_seed(2), f32()), second);
  EXPECT_LE(shared.held_bytes(), 2 * one);
  // What is forgotten stays with those who have it.
  EXPECT_EQ(second->o.value.size(), 32u);

  SharedAnswers none(0);
  EXPECT_EQ(none.expected(problem_of_seed(1), f32())->o.value, first->o.value);
  EXPECT_EQ(none.held_bytes(), 0u);
}

TEST(SharedAnswers, AreAuditedOnce) {
  SharedAnswers shared(1 << 20);
  const AttentionProblem problem = problem_of_seed(1);
  shared.expected(problem, f32());
  PrecisionProfile coarse = f32();
  coarse.u_acc *= 2;
  shared.expected(problem, coarse);
  EXPECT_TRUE(shared.claim_audit(problem, f32()));
  EXPECT_FALSE(shared.claim_audit(problem, f32()));
  EXPECT_TRUE(shared.claim_audit(problem, coarse));
}

TEST(SharedAnswers, GiveThreadsThatAskAtOnceOneAnswer) {
  SharedAnswers shared(1 << 20);
  constexpr int kThreads = 4, kProblems = 20;
  std::array<std::array<const Expected*, kProblems>, kThreads> got{};
  std::vector<std::shared_ptr<const Expected>> kept(kThreads * kProblems);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t n = 0; n < kProblems; ++n) {
        auto answer = shared.expected(problem_of_seed(n), f32());
        got[t][n] = answer.get();
        kept[t * kProblems + n] = std::move(answer);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 1; t < kThreads; ++t) EXPECT_EQ(got[t], got[0]);
}

TEST(SharedAnswers, LeaveTheAuditToOneOfTheKernels) {
  const Requirement asks{.id = "ASKS",
                         .sentence = "asks the oracle",
                         .check = [](CaseContext& context, const AttentionProblem& problem) {
                           CaseResult result;
                           result.elements_compared =
                               static_cast<std::int64_t>(context.expected(problem).o.value.size());
                           return result;
                         }};
  SharedAnswers shared(std::size_t{1} << 28);
  RunOptions options = fake_options({&asks});
  options.shared = &shared;
  const Record first = run_fake(options), second = run_fake(options);
  EXPECT_EQ(first.verdict, second.verdict);
  EXPECT_EQ(first.counts.total(), second.counts.total());
  EXPECT_GT(first.audit.rows, 0);
  EXPECT_EQ(second.audit.rows, 0);
}

}  // namespace
}  // namespace attest
