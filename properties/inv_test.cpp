// SPDX-License-Identifier: Apache-2.0
// Every requirement on state, threads, places, sizes and long contexts: an honest kernel passes it,
// and each kernel that breaks just that is caught by it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>

#include "attest/case_line.hpp"
#include "harness/generate.hpp"
#include "harness/unit.hpp"
#include "properties/inv_test_kernel.hpp"
#include "properties/run_requirement_test.hpp"

namespace attest {
namespace {

struct Outcome {
  int cases = 0, failed = 0, judged = 0;
  CaseResult first;
  std::string first_case;
};

/// Problems of the requirement's own stream, or of the shared one, or those given, in one process.
Outcome run(const char* id, Slip slip, std::uint64_t first, std::uint64_t count,
            const std::vector<AttentionProblem>& given = {}) {
  static const attest_plugin table =
      detail::table<InvTestKernel>("inv_test", "1", InvTestKernel::kDeclaration);
  InvTestKernel::slip = slip;
  OpenError error;
  const auto subject = open_in_process(&table, error);
  EXPECT_NE(subject, nullptr) << error.message;
  CaseContext context(*subject);
  const Requirement* requirement = find_requirement(id);
  EXPECT_NE(requirement, nullptr) << id;
  WorkList work;
  work.declaration = subject->declaration();
  work.requirements = {requirement};
  work.given = given;
  Outcome outcome;
  for (std::uint64_t index = first; index < first + count; ++index) {
    const auto problem = problem_of_only(work, index);
    if (!problem) continue;
    const CaseResult result = check_case(*requirement, context, *problem);
    ++outcome.cases;
    outcome.judged += result.verdict == Verdict::pass;
    if (!is_failure(result.verdict)) continue;
    if (++outcome.failed > 1) continue;
    outcome.first = result;
    outcome.first_case = print_case(*problem);
  }
  InvTestKernel::slip = Slip::none;
  return outcome;
}

struct Catch {
  const char* requirement;
  Slip slip;
  std::uint64_t first, count;  ///< which problems
  Reason reason;
};

class Caught : public testing::TestWithParam<Catch> {};

TEST_P(Caught, AndTheHonestKernelPasses) {
  const Catch& expected = GetParam();
  const Outcome honest = run(expected.requirement, Slip::none, expected.first, expected.count);
  EXPECT_EQ(honest.failed, 0) << honest.first.detail << "\n" << honest.first_case;
  EXPECT_GT(honest.judged, 0);
  const Outcome broken = run(expected.requirement, expected.slip, expected.first, expected.count);
  ASSERT_GT(broken.failed, 0) << "of " << broken.cases;
  EXPECT_EQ(name(broken.first.reason), name(expected.reason)) << broken.first.detail;
}

INSTANTIATE_TEST_SUITE_P(
    EachKind, Caught,
    testing::Values(
        Catch{"INV-ORDER", Slip::every_second_call, 0, 40, Reason::law_broken},
        Catch{"INV-ORDER", Slip::every_third_call, 0, 40, Reason::law_broken},
        Catch{"INV-ORDER", Slip::from_the_second_call, 0, 40, Reason::law_broken},
        Catch{"INV-ORDER", Slip::v_of_the_first_call_of_a_shape, 0, 40, Reason::law_broken},
        Catch{"INV-ORDER", Slip::causal_of_the_call_before, 0, 40, Reason::law_broken},
        Catch{"INV-ORDER", Slip::workspace_assumed_zero, 0, 40, Reason::nan_leak},
        Catch{"INV-THREADS", Slip::accumulator_shared_by_threads, 0, 40, Reason::law_broken},
        Catch{"INV-THREADS", Slip::rows_lost_beyond_two_threads, 0, 40, Reason::law_broken},
        Catch{"INV-THREADS", Slip::last_bit_by_threads, 0, 40, Reason::law_broken},
        Catch{"INV-BATCH", Slip::scale_by_batch, 0, 100, Reason::law_broken},
        Catch{"INV-BATCH", Slip::last_bit_by_batch, 0, 100, Reason::law_broken},
        Catch{"INV-ALIGNMENT", Slip::off_by_address, 0, 40, Reason::law_broken},
        Catch{"LIMIT-STRIDE", Slip::offset_16_bits, 0, 4, Reason::nan_leak},
        Catch{"LIMIT-STRIDE", Slip::offset_32_bits, 0, 8, Reason::nan_leak},
        Catch{"SIZE-GRID", Slip::mask_batch_taken_for_head, 0, 1100, Reason::wrong_value},
        Catch{"SIZE-GRID", Slip::last_key_of_full_tile_lost, 0, 1100, Reason::wrong_value},
        Catch{"SIZE-GRID", Slip::channel_64_lost, 0, 1100, Reason::wrong_value},
        Catch{"LONG-NEEDLE", Slip::lengths_16_bits, 0, 3, Reason::wrong_value},
        Catch{"LONG-NEEDLE", Slip::one_key_doubled, 0, 3, Reason::wrong_value},
        Catch{"LONG-NEEDLE", Slip::one_key_lost, 0, 3, Reason::wrong_value}),
    [](const auto& parameter) {
      std::string name = parameter.param.requirement;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + std::to_string(parameter.index);
    });

// In another process a kernel that counts its calls starts anew: what is found must be found there
// too, by the first check of the process.
TEST(Order, StateIsSeenByTheFirstCheckOfAProcess) {
  const auto problem = parse_case("attention.forward b=2 hq=2 lq=3 lk=4 d=4 base=causal seed=3");
  ASSERT_TRUE(problem) << problem.error();
  EXPECT_EQ(run("INV-ORDER", Slip::none, 0, 1, {*problem}).failed, 0);
  for (const Slip slip :
       {Slip::every_second_call, Slip::every_third_call, Slip::from_the_second_call,
        Slip::v_of_the_first_call_of_a_shape, Slip::causal_of_the_call_before}) {
    const Outcome outcome = run("INV-ORDER", slip, 0, 1, {*problem});
    EXPECT_EQ(outcome.failed, 1) << static_cast<int>(slip);
    EXPECT_EQ(name(outcome.first.reason), "law_broken") << outcome.first.detail;
  }
}

// 65,536 + 4 keys are stored, the last of them hidden: a query addresses the first hidden one.
TEST(LongNeedle, AHiddenKeyThatIsAddressedMustNotCount) {
  const auto problem =
      parse_case("attention.forward lq=8 lk=65540 d=17 dv=4 seqlens_k=65539 data=addressed seed=1");
  ASSERT_TRUE(problem) << problem.error();
  EXPECT_EQ(run("LONG-NEEDLE", Slip::none, 0, 1, {*problem}).failed, 0);
  EXPECT_EQ(run("LONG-NEEDLE", Slip::hidden_key_at_the_end_seen, 0, 1, {*problem}).failed, 1);
}

TEST(SizeGrid, VisitsItsPointsOnceBeforeAnyAgain) {
  const Declaration declaration = *parse_declaration(InvTestKernel::kDeclaration);
  const Requirement& requirement = *find_requirement("SIZE-GRID");
  std::set<std::int64_t> keys, queries, dims;
  std::set<std::vector<std::int64_t>> sizes;
  for (std::uint64_t index = 0; index < 1100; ++index) {
    const AttentionProblem p = requirement.draw(declaration, 1, index);
    ASSERT_EQ(not_declared(declaration, p), std::nullopt) << print_case(p);
    keys.insert(p.kv_len);
    queries.insert(p.q_len);
    dims.insert(p.head_dim);
    sizes.insert({p.batch, p.num_heads, p.q_len, p.kv_len, p.head_dim, p.v_head_dim});
  }
  for (std::int64_t length = 1; length <= 257; ++length) {
    EXPECT_TRUE(keys.contains(length)) << length;
    EXPECT_TRUE(queries.contains(length)) << length;
  }
  for (const std::int64_t tile : {16, 32, 48, 64, 96, 128, 192, 256})
    for (std::int64_t dim = tile - 1; dim <= tile + 1; ++dim)
      EXPECT_TRUE(dims.contains(dim)) << dim;
  EXPECT_TRUE(sizes.contains({3, 3, 3, 3, 3, 3}));
}

TEST(LongNeedle, ReachesTheLongestInEveryTypeAtOnce) {
  const Declaration declaration = *parse_declaration("dtype=f64,f32,f16,bf16 features=all");
  const Requirement& requirement = *find_requirement("LONG-NEEDLE");
  std::set<DType> longest;
  for (std::uint64_t index = 0; index < 4; ++index) {
    const AttentionProblem p = requirement.draw(declaration, 1, index);
    EXPECT_GE(p.kv_len, 131070);
    EXPECT_LE(p.kv_len, 131072);
    longest.insert(p.dtype);
  }
  EXPECT_EQ(longest.size(), 4u);
}

TEST(LimitStride, ATightAddressSpaceIsNotHeldAgainstTheKernel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the address space that is taken away here";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = rlim_t{4} << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const Outcome outcome = run("LIMIT-STRIDE", Slip::none, 0, 3);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_GT(outcome.cases, 0);
  EXPECT_EQ(outcome.failed, 0) << outcome.first.detail;
  EXPECT_EQ(outcome.judged, 0);
}

}  // namespace
}  // namespace attest
