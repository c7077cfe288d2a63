// SPDX-License-Identifier: Apache-2.0
#include "harness/decode_loop.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

std::unique_ptr<Subject> built_in(const char* name) {
  const Result<SubjectSpec> spec = resolve_subject(name);
  OpenError error;
  auto subject = spec ? open_in_host(*spec, error) : nullptr;
  EXPECT_TRUE(subject) << name << ": " << error.message;
  return subject;
}

DecodeLoop loop_of(std::int64_t kv_heads, std::int64_t rows) {
  DecodeLoop loop;
  AttentionProblem& p = loop.shape;
  p.operation = Operation::decode;
  p.dtype = DType::bf16;
  p.base = Base::causal;
  p.num_heads = 32;
  p.num_kv_heads = kv_heads;
  p.head_dim = p.v_head_dim = 128;
  p.q_len = 1;
  p.kv_len = rows;
  p.want_lse = false;
  loop.num_threads = 2;
  return loop;
}

/// The figures of a server's cache: 4,096 tokens, one at a time.
TEST(DecodeLoop, FourThousandStepsAgreeWithTheWholeSequenceAtEvery97th) {
  const auto subject = built_in("contiguous");
  ASSERT_TRUE(subject);
  const DecodeLoopResult result = run_decode_loop(*subject, loop_of(8, 4096));
  EXPECT_EQ(result.judgement.verdict, Verdict::pass) << result.judgement.detail;
  EXPECT_EQ(result.calls, 4096);
  EXPECT_EQ(result.judged, 4096 / 97 + 1);
  EXPECT_EQ(result.bytes_written, 2 * 4096 * 8 * 128 * 2);
}

/// Each sees 16 keys alone, so that the loop costs what it writes.
void expect_bytes(const char* name, std::int64_t kv_heads, std::int64_t rows) {
  const auto subject = built_in(name);
  ASSERT_TRUE(subject);
  DecodeLoop loop = loop_of(kv_heads, rows);
  loop.shape.window_left = 15;
  loop.shape.q_len = 128;
  loop.judge_every = 16;
  if (std::string(name) == "paged") {
    loop.shape.cache = CacheKind::paged;
    loop.shape.page_size = 16;
    loop.shape.pages = PageOrder::shuffled;
  }
  const DecodeLoopResult result = run_decode_loop(*subject, loop);
  EXPECT_EQ(result.judgement.verdict, Verdict::pass) << name << result.judgement.detail;
  EXPECT_EQ(result.bytes_written, 2 * rows * kv_heads * 128 * 2) << name;
  EXPECT_EQ(result.bytes_expected, result.bytes_written) << name;
}

TEST(DecodeLoop, CachesTakeTheBytesOfTheirRowsWhateverTheHeads) {
  for (const std::int64_t kv_heads : {32, 8, 1}) expect_bytes("contiguous", kv_heads, 4096);
  for (const std::int64_t kv_heads : {32, 8, 1}) expect_bytes("paged", kv_heads, 512);
}

TEST(DecodeLoop, ARingOverwritesAndStaysRight) {
  const auto subject = built_in("ring");
  ASSERT_TRUE(subject);
  DecodeLoop loop = loop_of(1, 1000);
  loop.shape.cache = CacheKind::ring;
  loop.shape.cache_rows = 64;
  loop.shape.window_left = 63;
  const DecodeLoopResult result = run_decode_loop(*subject, loop);
  EXPECT_EQ(result.judgement.verdict, Verdict::pass) << result.judgement.detail;
  EXPECT_EQ(result.bytes_written, 2 * 64 * 128 * 2) << "the ring's rows, and no others";
}

}  // namespace
}  // namespace attest
