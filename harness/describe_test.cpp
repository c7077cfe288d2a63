// SPDX-License-Identifier: Apache-2.0
#include "harness/describe.hpp"

#include <gtest/gtest.h>

#include "harness/tally.hpp"

namespace attest {
namespace {

AttentionProblem problem_of(std::int64_t b, std::int64_t h, std::int64_t lq, std::int64_t dv) {
  AttentionProblem problem;
  problem.batch = b;
  problem.num_heads = problem.num_kv_heads = h;
  problem.q_len = lq;
  problem.v_head_dim = dv;
  return problem;
}

CaseResult failed_at(const std::string& tensor, std::vector<std::uint32_t> elements) {
  CaseResult result;
  result.worst = Element{};
  result.worst->tensor = tensor;
  result.failed_elements = std::move(elements);
  return result;
}

TEST(IndexRanges, JoinsNeighbours) {
  EXPECT_EQ(index_ranges({0}, 3), "0 of 3");
  EXPECT_EQ(index_ranges({0, 1, 2, 5, 7, 8}, 9), "0-2, 5, 7-8 of 9");
  std::vector<std::int64_t> even;
  for (std::int64_t i = 0; i < 200; i += 2) even.push_back(i);
  EXPECT_LT(index_ranges(even, 200).size(), 60u);
  EXPECT_NE(index_ranges(even, 200).find("..."), std::string::npos);
}

TEST(FailurePattern, NamesRowsHeadsAndChannels) {
  // o is [1, 2, 3, 4]: head 1, row 2, channels 0 and 1 are elements 20 and 21.
  EXPECT_EQ(failure_pattern(problem_of(1, 2, 3, 4), failed_at("o", {20, 21})),
            "head 1 of 2, query row 2 of 3, channels 0-1 of 4");
  // Row 0 of both heads, all channels.
  EXPECT_EQ(failure_pattern(problem_of(1, 2, 3, 2), failed_at("o", {0, 1, 6, 7})),
            "all heads, query row 0 of 3, all channels");
  // lse is [2, 1, 3].
  EXPECT_EQ(failure_pattern(problem_of(2, 1, 3, 4), failed_at("lse", {1, 2})),
            "sequence 0 of 2, query rows 1-2 of 3");
  EXPECT_EQ(failure_pattern(problem_of(1, 1, 2, 1), failed_at("o", {0, 1})), "every element of o");
  EXPECT_EQ(failure_pattern(problem_of(1, 1, 2, 1), failed_at("q", {0})), "");
  EXPECT_EQ(failure_pattern(problem_of(1, 1, 2, 1), CaseResult{}), "");
}

TEST(Ranges, JoinsConsecutiveNumbers) {
  EXPECT_EQ(ranges({}), std::vector<std::string>{});
  EXPECT_EQ(ranges({1, 2, 3, 8, 16, 17}), (std::vector<std::string>{"1-3", "8", "16-17"}));
}

}  // namespace
}  // namespace attest
