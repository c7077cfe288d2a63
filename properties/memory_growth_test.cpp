// SPDX-License-Identifier: Apache-2.0
// What counts as growing with the product of the lengths, and that calls are measured in processes
// that have made no other.
#include "properties/memory_growth.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "attest/case_line.hpp"
#include "harness/arena.hpp"
#include "harness/suite.hpp"

namespace attest {
namespace {

/// At an eighth, a quarter, half and all of kMemoryLength.
std::vector<std::uint64_t> at_lengths(const std::function<double(double)>& bytes) {
  std::vector<std::uint64_t> all;
  for (const int part : {8, 4, 2, 1})
    all.push_back(static_cast<std::uint64_t>(bytes(static_cast<double>(kMemoryLength / part))));
  return all;
}

bool grows(const std::function<double(double)>& bytes) {
  return grows_with_product(at_lengths(bytes), kMemoryLength);
}

TEST(MemoryGrowth, IsLinear) {
  EXPECT_FALSE(grows([](double) { return 0; }));
  EXPECT_FALSE(grows([](double) { return 1e9; })) << "a table made by the first call";
  EXPECT_FALSE(grows([](double n) { return 1000 * n; }));
  EXPECT_FALSE(grows([](double n) { return 3e7 + 1000 * n; }));
  EXPECT_FALSE(grows([](double n) { return 1000 * n * std::log2(n); }));
  EXPECT_FALSE(grows([](double n) { return n < 2048 ? 64 * n : 5000 * n; }))
      << "another algorithm from a length on";
  EXPECT_FALSE(grows([](double n) { return 0x1p21 * std::ceil(1000 * n / 0x1p21); }))
      << "taken in pieces of 2 MiB";
  EXPECT_FALSE(grows([](double n) { return n * n / 16; })) << "too small to be a matrix";
}

TEST(MemoryGrowth, IsQuadratic) {
  EXPECT_TRUE(grows([](double n) { return n * n; }));
  EXPECT_TRUE(grows([](double n) { return n * n / 8; })) << "a bit a pair";
  EXPECT_TRUE(grows([](double n) { return 3e7 + 1000 * n + 4 * n * n; }));
  EXPECT_TRUE(grows([](double n) { return 400 * n + 2 * n * n; }));
}

/// Gives zeros and says what memory it had: what it holds is taken by the first call of a process.
class MeasuredSubject : public Subject {
 public:
  MeasuredSubject(std::function<std::optional<std::uint64_t>(std::int64_t)> bytes)
      : bytes_(std::move(bytes)) {}
  const std::string& kernel_name() const override { return name_; }
  const std::string& version() const override { return name_; }
  const Declaration& declaration() const override { return declaration_; }
  int alignment() const override { return 0; }
  Arena& arena() override { return arena_; }
  void restart() override { fresh_ = true; }
  CallStatus call(const PlacedCall& call, const CallLimits&) override {
    CallStatus status;
    const std::int64_t rows = call.tensors[static_cast<int>(Slot::q)].shape[2];
    status.peak_bytes = bytes_(rows);
    if (status.peak_bytes && fresh_) *status.peak_bytes += held;
    measured_fresh += fresh_;
    fresh_ = false;
    return status;
  }
  std::uint64_t held = 0;
  int measured_fresh = 0;

 private:
  std::function<std::optional<std::uint64_t>(std::int64_t)> bytes_;
  std::string name_ = "measured";
  Declaration declaration_ =
      *parse_declaration("dtype=f32 features=all backward=all deterministic memory=linear");
  Arena arena_;
  bool fresh_ = true;
};

CaseResult check(const char* id, MeasuredSubject& subject, std::uint64_t index = 0) {
  const Requirement& requirement = *find_requirement(id);
  CaseContext context(subject);
  const AttentionProblem problem = drawn_for(requirement, subject.declaration(), 1, index);
  EXPECT_EQ(requirement.usable(problem, subject.declaration()), problem) << print_case(problem);
  EXPECT_FALSE(not_declared(subject.declaration(), problem)) << print_case(problem);
  return requirement.check(context, problem);
}

class Memory : public testing::TestWithParam<const char*> {};

TEST_P(Memory, OfAnHonestKernelIsLinear) {
  for (std::uint64_t index = 0; index < 12; ++index) {
    MeasuredSubject subject(
        [](std::int64_t rows) { return 500 * static_cast<std::uint64_t>(rows); });
    subject.held = 1 << 28;
    EXPECT_EQ(check(GetParam(), subject, index).verdict, Verdict::pass);
    EXPECT_GE(subject.measured_fresh, 4);
  }
}

TEST_P(Memory, OfAMatrixOfScoresIsAFailure) {
  MeasuredSubject subject([](std::int64_t rows) {
    return 2 * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(rows);
  });
  const CaseResult result = check(GetParam(), subject);
  EXPECT_EQ(result.verdict, Verdict::fail);
  EXPECT_EQ(result.reason, Reason::law_broken);
  EXPECT_EQ(result.detail,
            "takes memory that grows with the product of the lengths, though memory=linear is "
            "promised [128.0 KiB, 512.0 KiB, 2.0 MiB and 8.0 MiB at 256, 512, 1024 and 2048 rows]");
}

TEST_P(Memory, ThatIsNotMeasuredIsNotJudged) {
  MeasuredSubject subject([](std::int64_t) { return std::nullopt; });
  EXPECT_EQ(check(GetParam(), subject).verdict, Verdict::not_judged);
}

TEST_P(Memory, IsNoMatterOfAKernelThatPromisesNothing) {
  const Requirement& requirement = *find_requirement(GetParam());
  EXPECT_EQ(skipped(requirement, *parse_declaration("dtype=f32 backward")),
            "not promised: memory=linear");
#if !defined(ATTEST_SANITIZED)
  EXPECT_EQ(skipped(requirement, *parse_declaration("dtype=f32 backward memory=linear "
                                                    "max_kv_len=1024")),
            "not declared: lengths of 2048");
#endif
}

INSTANTIATE_TEST_SUITE_P(Of, Memory, testing::Values("MEM-LINEAR", "GRAD-MEMORY"),
                         [](const auto& of) {
                           return std::string(of.param) == "MEM-LINEAR" ? "Forward" : "Backward";
                         });

}  // namespace
}  // namespace attest
