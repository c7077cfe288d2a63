// SPDX-License-Identifier: Apache-2.0
#include "harness/narrow.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

/// What is left, as text; "" of nothing.
std::string left(const std::string& kernel, const std::string& scope) {
  const auto both = narrowed(*parse_declaration(kernel), *parse_declaration(scope));
  return both ? print_declaration(*both) : "";
}

TEST(Narrowed, IsWhatBothDeclare) {
  EXPECT_EQ(left("dtype=f32,bf16 gqa lse", "dtype=bf16 lse scale"), "dtype=bf16 lse");
  EXPECT_EQ(left("dtype=f32 head_dim=8..64%8", "dtype=f32 head_dim=16..20,64,65"),
            "dtype=f32 head_dim=16,64");
  EXPECT_EQ(left("dtype=f32 max_kv_len=64", "dtype=f32 max_kv_len=32 max_q_len=8"),
            "dtype=f32 max_q_len=8 max_kv_len=32");
  EXPECT_EQ(left("dtype=f32 v_head_dim=any", "dtype=f32"), "dtype=f32");
  EXPECT_EQ(left("dtype=f32 deterministic batch_invariant", "dtype=f32 deterministic"),
            "dtype=f32 deterministic");
  EXPECT_EQ(left("dtype=f32 memory=linear", "dtype=f32"), "dtype=f32");
  EXPECT_EQ(left("dtype=f32 memory=linear", "dtype=f32 memory=linear"), "dtype=f32 memory=linear");
}

TEST(Narrowed, KeepsTheKernelsOwnWays) {
  EXPECT_EQ(left("dtype=bf16 lse lse_base=2 precision=mma_f32acc", "dtype=bf16 lse"),
            "dtype=bf16 lse lse_base=2 precision=mma_f32acc");
}

TEST(Narrowed, DropsWhatSpeaksOfNothingLeft) {
  EXPECT_EQ(left("dtype=f32 lse lse_base=2", "dtype=f32"), "dtype=f32");
  EXPECT_EQ(left("dtype=f32 mask base=full,causal align=top_left masked_nan_safe",
                 "dtype=f32 mask masked_nan_safe"),
            "dtype=f32 mask masked_nan_safe");
  EXPECT_EQ(left("dtype=f32 mask masked_nan_safe",
                 "dtype=f32 base=full,causal align=top_left masked_nan_safe"),
            "dtype=f32");
}

TEST(Narrowed, IsNothingWhereNothingIsShared) {
  EXPECT_EQ(left("dtype=f32", "dtype=bf16"), "");
  EXPECT_EQ(left("dtype=f32 head_dim=8", "dtype=f32 head_dim=16"), "");
}

}  // namespace
}  // namespace attest
