// SPDX-License-Identifier: Apache-2.0
#include "harness/measure_cache.hpp"

#include <algorithm>
#include <optional>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/decode_loop.hpp"
#include "harness/generate.hpp"

namespace attest {

namespace {

constexpr std::int64_t kHeads = 32, kRows = 256, kChunk = 128, kHeadDim = 128;

/// A prompt of 256 tokens in two chunks. Each token sees a few others where there are windows, so
/// that it costs what it writes.
std::optional<AttentionProblem> loop_of(const Declaration& declaration, std::int64_t kv_heads) {
  AttentionProblem p;
  p.operation = Operation::decode;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (declaration.has(dtype)) p.dtype = dtype;
  if (declaration.has(Feature::causal)) p.base = Base::causal;
  if (declaration.has(Feature::window_left)) p.window_left = 15;
  p.num_heads = kHeads;
  p.num_kv_heads = kv_heads;
  p.head_dim = p.v_head_dim = kHeadDim;
  p.kv_len = kRows;
  p.q_len = kChunk;
  p.want_lse = false;
  if (!declaration.cache.contiguous)
    p.cache = declaration.cache.paged ? CacheKind::paged : CacheKind::ring;
  if (p.cache == CacheKind::paged) {
    p.page_size = 16;
    p.pages = PageOrder::shuffled;
  }
  p = make_legal(std::move(p), declaration);
  const bool as_meant = p.operation == Operation::decode && p.num_heads == kHeads &&
                        p.num_kv_heads == kv_heads && p.kv_len == kRows && p.q_len == kChunk;
  return as_meant ? std::optional(std::move(p)) : std::nullopt;
}

}  // namespace

std::vector<CacheMemory> measure_caches(Subject& subject, const CallLimits& limits,
                                        std::string& trouble) {
  std::vector<CacheMemory> measured;
  const Declaration& declaration = subject.declaration();
  if (!declaration.cache.served()) return measured;
  for (const auto& [name, kv_heads] : {std::pair{"MHA", kHeads}, std::pair{"GQA", std::int64_t{8}},
                                       std::pair{"MQA", std::int64_t{1}}}) {
    const auto shape = loop_of(declaration, kv_heads);
    if (!shape) continue;
    DecodeLoop loop;
    loop.shape = *shape;
    loop.judge_every = 0;
    loop.limits = limits;
    const DecodeLoopResult result = run_decode_loop(subject, loop);
    if (result.bytes_written == 0 && result.judgement.verdict != Verdict::not_judged) {
      trouble = result.judgement.detail;
      continue;
    }
    measured.push_back({name, print_case(*shape), shape->num_heads, shape->num_kv_heads,
                        shape->head_dim, shape->kv_len, std::string(enum_name(shape->dtype)),
                        result.bytes_expected, result.bytes_written});
  }
  return measured;
}

}  // namespace attest
