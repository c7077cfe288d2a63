// SPDX-License-Identifier: Apache-2.0
#include "attest/problem.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace attest {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(EffectiveScale, IsTheReciprocalRootRoundedOnce) {
  // 1/sqrt(n) to 80 decimal digits, rounded to a double by Python's decimal module.
  const struct {
    std::int64_t head_dim;
    double scale;
  } kTable[] = {
      {1, 1.0},
      {2, 0x1.6a09e667f3bcdp-1},
      {3, 0x1.279a74590331cp-1},
      {4, 0.5},
      {5, 0x1.c9f25c5bfedd9p-2},
      {6, 0x1.a20bd700c2c3ep-2},
      {7, 0x1.83091e6a7f7e7p-2},
      {63, 0x1.02061446ffa9ap-3},
      {64, 0.125},
      {65, 0x1.fc0bd88a0f1d9p-4},
      {96, 0x1.a20bd700c2c3ep-4},
      {128, 0x1.6a09e667f3bcdp-4},
      {256, 0.0625},
      {1000, 0x1.030dc4ea03a72p-5},
      {4097, 0x1.fff000bff6009p-7},
      {1000003, 0x1.0624c36a0c905p-10},
      {2147483647, 0x1.6a09e6695dc6bp-16},
      {1099511627777, 0x1.ffffffffff000p-21},     // 4^20 + 1
      {1125899906842623, 0x1.0000000000002p-25},  // 4^25 - 1
      {9007199254740993, 0x1.6a09e667f3bccp-27},  // 2^53 + 1, no double
      {4611686018427387903, 0x1p-31},
      {4611686018427387904, 0x1p-31},
  };
  for (const auto& [head_dim, scale] : kTable) {
    AttentionProblem problem;
    problem.head_dim = head_dim;
    EXPECT_EQ(effective_scale(problem), scale) << head_dim;
  }
}

TEST(EffectiveScale, AGivenScaleWins) {
  AttentionProblem problem;
  problem.head_dim = 64;
  problem.scale = -0.3;
  EXPECT_EQ(effective_scale(problem), -0.3);
  problem.scale.reset();
  problem.head_dim = 0;
  EXPECT_EQ(effective_scale(problem), 0);
  problem.head_dim = -4;
  EXPECT_EQ(effective_scale(problem), 0);
}

TEST(EffectiveRopeDim, IsHeadDimRoundedDownToEven) {
  AttentionProblem problem;
  problem.head_dim = 65;
  EXPECT_EQ(effective_rope_dim(problem), 64);
  problem.head_dim = 64;
  EXPECT_EQ(effective_rope_dim(problem), 64);
  problem.rope_dim = 16;
  EXPECT_EQ(effective_rope_dim(problem), 16);
}

TEST(NumSequences, CountsTheBatchOrTheSegments) {
  AttentionProblem problem;
  problem.batch = 3;
  EXPECT_EQ(num_sequences(problem), 3);
  problem.batch = 1;
  problem.cu_seqlens_q = problem.cu_seqlens_k = {0, 2, 2, 5, 6};
  EXPECT_EQ(num_sequences(problem), 4);
}

AttentionProblem small() {
  AttentionProblem problem;
  problem.dtype = DType::bf16;
  problem.batch = 2;
  problem.num_heads = 6;
  problem.num_kv_heads = 3;
  problem.q_len = 5;
  problem.kv_len = 7;
  problem.head_dim = 4;
  problem.v_head_dim = 8;
  return problem;
}

TEST(TensorBytes, AddsEveryTensorOfTheCall) {
  AttentionProblem problem = small();
  problem.want_lse = false;
  const std::int64_t q = 2 * 6 * 5 * 4 * 2, k = 2 * 3 * 7 * 4 * 2, v = 2 * 3 * 7 * 8 * 2,
                     o = 2 * 6 * 5 * 8 * 2;
  std::int64_t bytes = q + k + v + o;
  EXPECT_EQ(tensor_bytes(problem), bytes);
  problem.want_lse = true;
  EXPECT_EQ(tensor_bytes(problem), bytes += 2 * 6 * 5 * 4);
  problem.bias = BiasKind::normal;
  problem.bias_axes = {false, true, false, true};
  EXPECT_EQ(tensor_bytes(problem), bytes += 6 * 7 * 2);
  problem.mask = MaskKind::random;
  problem.mask_axes = {true, false, true, true};
  EXPECT_EQ(tensor_bytes(problem), bytes += 2 * 5 * 7);
  problem.blocks = true;
  problem.block_q = 2;
  problem.block_k = 4;
  EXPECT_EQ(tensor_bytes(problem), bytes += 2 * 6 * 3 * 2);
  problem.dropout_p = 0.5;
  EXPECT_EQ(tensor_bytes(problem), bytes += 2 * 6 * 5 * 7);
  problem.alibi = AlibiKind::signed_;
  EXPECT_EQ(tensor_bytes(problem), bytes += 6 * 4);
  problem.slopes = SlopesKind::per_batch;
  EXPECT_EQ(tensor_bytes(problem), bytes += 6 * 4);
  problem.sink = SinkKind::normal;
  EXPECT_EQ(tensor_bytes(problem), bytes += 6 * 4);
  problem.seqlens_k = {7, 3};
  EXPECT_EQ(tensor_bytes(problem), bytes += 2 * 4);
  problem.dtype = DType::f64;
  EXPECT_GT(tensor_bytes(problem), 3 * bytes);
}

TEST(TensorBytes, RopeTablesCoverEveryPosition) {
  AttentionProblem problem = small();
  const std::int64_t without = tensor_bytes(problem);
  problem.rope = RopePairing::half;  // R = 4: two columns in cos and sin
  EXPECT_EQ(tensor_bytes(problem) - without, 2 * 7 * 2 * 4);
  problem.align = Align::q_offset;
  problem.q_offset = {100, -3};  // positions -3 .. 104
  EXPECT_EQ(tensor_bytes(problem) - without, 2 * 108 * 2 * 4 + 2 * 4);
}

AttentionProblem small_decode() {
  AttentionProblem problem = small();
  problem.operation = Operation::decode;
  return problem;
}

TEST(CacheCapacity, IsTheLengthUnlessGivenAndNeverNone) {
  AttentionProblem problem = small_decode();
  EXPECT_EQ(cache_capacity(problem), 7);
  problem.cache_rows = 9;
  EXPECT_EQ(cache_capacity(problem), 9);
  problem.cache_rows = 3;  // a ring
  EXPECT_EQ(cache_capacity(problem), 3);
  problem.cache_rows = problem.kv_len = 0;
  EXPECT_EQ(cache_capacity(problem), 1);
}

TEST(PagesPerSequence, HoldTheCapacity) {
  AttentionProblem problem = small_decode();
  EXPECT_EQ(pages_per_sequence(problem), 0);
  const struct {
    std::int64_t rows, size, pages;
  } kTable[] = {{7, 1, 7}, {7, 2, 4}, {7, 6, 2},         {7, 7, 1},         {7, 8, 1}, {8, 4, 2},
                {9, 4, 3}, {1, 4, 1}, {kMost, kMost, 1}, {kMost, 1, kMost}, {0, 7, 1}, {0, 8, 1}};
  for (const auto& [rows, size, pages] : kTable) {
    problem.cache_rows = rows;
    problem.page_size = size;
    EXPECT_EQ(pages_per_sequence(problem), pages) << rows << " rows, pages of " << size;
  }
}

TEST(CachedRows, AreThoseBeforeTheNewOnes) {
  AttentionProblem problem = small_decode();
  for (const std::int64_t b : {0, 1}) {
    EXPECT_EQ(new_rows(problem, b), 5);
    EXPECT_EQ(cached_rows(problem, b), 2);
  }
  problem.seqlens_k = {7, 5};
  EXPECT_EQ(cached_rows(problem, 0), 2);
  EXPECT_EQ(cached_rows(problem, 1), 0);
  problem.seqlens_q = {0, 3};
  EXPECT_EQ(new_rows(problem, 0), 0);
  EXPECT_EQ(new_rows(problem, 1), 3);
  EXPECT_EQ(cached_rows(problem, 0), 7);
  EXPECT_EQ(cached_rows(problem, 1), 2);
  problem.seqlens_k.clear();
  EXPECT_EQ(cached_rows(problem, 1), 4);
}

TEST(SharedPages, AreThoseThatEverySequenceHasFilledBeforeTheCall) {
  AttentionProblem problem = small_decode();
  problem.kv_len = 11;  // six rows before the call
  problem.cache = CacheKind::paged;
  problem.page_size = 2;
  for (const PageOrder order : {PageOrder::in_order, PageOrder::shuffled}) {
    problem.pages = order;
    EXPECT_EQ(shared_pages(problem), 0);
  }
  problem.pages = PageOrder::shared;
  EXPECT_EQ(shared_pages(problem), 3);
  problem.page_size = 4;
  EXPECT_EQ(shared_pages(problem), 1);
  problem.page_size = 6;
  EXPECT_EQ(shared_pages(problem), 1);
  problem.page_size = 7;
  EXPECT_EQ(shared_pages(problem), 0);
  problem.page_size = 2;
  problem.seqlens_k = {11, 8};  // the second one has three
  EXPECT_EQ(shared_pages(problem), 1);
  problem.seqlens_q = {5, 0};  // the second one has eight, the first six
  EXPECT_EQ(shared_pages(problem), 3);
  problem.seqlens_k.clear();
  EXPECT_EQ(shared_pages(problem), 3);
  problem.batch = 0;
  EXPECT_EQ(shared_pages(problem), 0);
}

TEST(ForwardOf, LeavesNothingOfADecodeCall) {
  AttentionProblem problem = small_decode();
  problem.seqlens_k = {7, 5};
  const AttentionProblem forward = [&] {
    AttentionProblem copy = problem;
    copy.operation = Operation::forward;
    return copy;
  }();
  problem.cache = CacheKind::paged;
  problem.cache_rows = 9;
  problem.page_size = 4;
  problem.pages = PageOrder::shared;
  problem.cache_rotated = true;
  problem.num_splits = 2;
  EXPECT_TRUE(forward_of(problem) == forward);
}

TEST(TensorBytes, CountsCachesPagesAndTables) {
  AttentionProblem problem = small_decode();
  const std::int64_t plain = tensor_bytes(forward_of(problem));
  const std::int64_t row = 3 * (4 + 8) * 2;
  EXPECT_GE(tensor_bytes(problem), plain + 2 * 7 * row + 2 * 4);
  problem.cache_rows = 100;
  EXPECT_GE(tensor_bytes(problem), plain + 2 * 100 * row + 2 * 4);
  EXPECT_LE(tensor_bytes(problem), plain + 4 * 100 * row);
  problem.cache = CacheKind::paged;
  problem.page_size = 64;  // two pages each, half as many that nobody has, and one
  EXPECT_GE(tensor_bytes(problem), plain + (2 * 2 + 2 + 1) * 64 * row + 2 * 2 * 4);
  EXPECT_LE(tensor_bytes(problem), plain + 3 * 2 * 2 * 64 * row + 1000);
  problem.batch = problem.cache_rows = kMost;
  EXPECT_EQ(tensor_bytes(problem), kMost);
  problem.batch = kMost;
  problem.cache_rows = problem.page_size = 1;
  problem.num_kv_heads = problem.num_heads = problem.q_len = problem.kv_len = 0;
  EXPECT_GE(tensor_bytes(problem), 0);
}

TEST(TensorBytes, SaturatesAndNeverOverflows) {
  AttentionProblem problem = small();
  problem.batch = problem.q_len = problem.kv_len = kMost;
  EXPECT_EQ(tensor_bytes(problem), kMost);
  problem.batch = 0;
  EXPECT_EQ(tensor_bytes(problem), 0);
  problem = small();
  problem.q_len = std::numeric_limits<std::int64_t>::min();
  problem.rope = RopePairing::half;
  problem.left_pad_q = {kMost};
  problem.seqlens_k = {std::numeric_limits<std::int64_t>::min(), kMost};
  EXPECT_GE(tensor_bytes(problem), 0);
}

}  // namespace
}  // namespace attest
