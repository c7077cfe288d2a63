// SPDX-License-Identifier: Apache-2.0
#include "properties/memory_growth.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/arena.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"

namespace attest {

namespace {

constexpr std::uint64_t kTag = 0x6d656d6f72790000u;
constexpr std::int64_t kChannels = 16;
constexpr std::int64_t kLengths = 4;

std::int64_t channels(const DimSet& dims) {
  for (std::int64_t dim = kChannels; dim <= 1024; ++dim)
    if (contains(dims, dim)) return dim;
  for (std::int64_t dim = kChannels; dim > 1; --dim)
    if (contains(dims, dim)) return dim;
  return 1;
}

/// Bytes of the call in a fresh process, or why there are none. Backward is given what the kernel's
/// forward stored, by a process that is gone: what forward keeps is no memory of backward.
std::optional<CaseResult> measure(CaseContext& context, const AttentionProblem& problem,
                                  std::uint64_t& bytes) {
  AttentionInputs inputs = make_inputs(problem);
  if (problem.operation == Operation::backward) {
    const Observation forward = context.call(forward_of(problem), inputs);
    if (auto result = judge_call(forward, context.declaration(), problem)) return result;
    take_forward(problem, forward, inputs);
  }
  context.subject().restart();
  const Observation seen = context.call(problem, inputs);
  if (auto result = judge_call(seen, context.declaration(), problem)) return result;
  if (!seen.call.peak_bytes) {
    CaseResult result;
    result.verdict = Verdict::not_judged;
    result.detail = "the kernel has no process of its own, whose memory could be measured";
    return result;
  }
  bytes = *seen.call.peak_bytes;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> skip_without_linear_memory(const Declaration& declaration) {
  if (!declaration.memory_linear) return "not promised: memory=linear";
#if defined(ATTEST_SANITIZED)
  return "memory is not measured in builds with sanitizers";
#else
  const auto covers = [](std::int64_t limit) { return limit == 0 || limit >= kMemoryLength; };
  if (!covers(declaration.max_q_len) || !covers(declaration.max_kv_len))
    return fmt::format("not declared: lengths of {}", kMemoryLength);
  return std::nullopt;
#endif
}

AttentionProblem draw_long_head(const Declaration& declaration, std::uint64_t seed,
                                std::uint64_t index) {
  const std::uint64_t dtypes = std::max<std::size_t>(declaration.dtypes.size(), 1);
  const std::uint64_t round = index / dtypes;
  const std::uint64_t lot = mix(seed, kTag, index, 0, 0, 0);
  AttentionProblem p;
  if (!declaration.dtypes.empty()) p.dtype = declaration.dtypes[index % dtypes];
  p.seed = lot >> 44;
  p.q_len = p.kv_len = kMemoryLength;
  p.head_dim = p.v_head_dim = channels(declaration.head_dims);
  p.want_lse = declaration.has(Feature::lse);
  const auto takes = [&](Feature feature, unsigned bit) {
    return declaration.has(feature) && round > 1 && (lot >> bit) % 2 == 0;
  };
  if (declaration.has(Feature::causal) && (round == 1 || (round > 1 && lot % 4 != 0)))
    p.base = Base::causal;
  if (takes(Feature::window_left, 3)) p.window_left = 128;
  if (takes(Feature::softcap, 4)) p.softcap = 20;
  if (takes(Feature::alibi_signed, 5)) p.alibi = AlibiKind::signed_;
  if (takes(Feature::sink, 6)) p.sink = SinkKind::normal;
  if (takes(Feature::rope_half, 7)) p.rope = RopePairing::half;
  if (takes(Feature::bias, 8)) {
    p.bias = BiasKind::normal;
    p.bias_axes = {false, false, false, true};
  }
  return make_legal(p, declaration);
}

std::optional<AttentionProblem> adapt_to_long_head(AttentionProblem p,
                                                   const Declaration& declaration) {
  const bool is_long = p.q_len == kMemoryLength && p.kv_len == kMemoryLength &&
                       p.head_dim == channels(declaration.head_dims);
  const bool one_head = p.batch == 1 && p.num_heads == 1 && p.num_kv_heads == 1;
  const bool has_lists = !p.seqlens_q.empty() || !p.seqlens_k.empty() || !p.left_pad_q.empty() ||
                         !p.left_pad_k.empty() || !p.cu_seqlens_q.empty() || !p.q_offset.empty() ||
                         !p.prefix_len.empty() || p.data == Family::list;
  if (!is_long || !one_head || has_lists) return std::nullopt;
  return p;
}

// What a call has is a + b L + c L^2. The difference of two neighbouring lengths is free of a, and
// doubles with the length where c is 0, but quadruples where b is. It is held against 3, for both
// pairs of neighbours: one alone may be the length at which a kernel changes its algorithm, or
// where what it takes in large pieces is full. At 16 channels of f32 a tensor of 2048 rows has 128
// KiB and a matrix of scores 16 MiB, so that c decides for any kernel that has one. The least
// matrix, one bit a pair, has 512 KiB; less is not accused, whatever its shape.
bool grows_with_product(const std::vector<std::uint64_t>& bytes, std::int64_t longest) {
  constexpr double kBetween = 3;
  const auto least = static_cast<std::uint64_t>(longest * longest / 8);
  if (bytes.size() < 3 || bytes.back() < least) return false;
  double before = -1;
  for (std::size_t n = 1; n < bytes.size(); ++n) {
    const double grown = static_cast<double>(bytes[n]) - static_cast<double>(bytes[n - 1]);
    if (n > 1 && grown <= kBetween * before) return false;
    before = grown;
  }
  return true;
}

CaseResult check_growth(CaseContext& context, const AttentionProblem& problem) {
  std::vector<std::uint64_t> bytes;
  std::string measured, lengths;
  for (std::int64_t n = kLengths - 1; n >= 0; --n) {
    AttentionProblem shorter = problem;
    shorter.q_len = shorter.kv_len = problem.q_len >> n;
    std::uint64_t taken = 0;
    if (auto result = measure(context, shorter, taken)) return *result;
    bytes.push_back(taken);
    const char* const separator = bytes.size() == 1 ? "" : n == 0 ? " and " : ", ";
    measured += separator + human_bytes(taken);
    lengths += separator + std::to_string(shorter.q_len);
  }
  CaseResult result;
  if (!grows_with_product(bytes, problem.q_len)) return result;
  result.verdict = Verdict::fail;
  result.reason = Reason::law_broken;
  // The sentence of the cause ends at the bracket.
  result.detail = fmt::format(
      "takes memory that grows with the product of the lengths, though memory=linear is promised "
      "[{} at {} rows]",
      measured, lengths);
  return result;
}

}  // namespace attest
