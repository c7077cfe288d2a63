// SPDX-License-Identifier: Apache-2.0
#include "harness/complexity.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "harness/switches.hpp"

namespace attest {
namespace {

/// Sums of this many capped terms do not overflow.
std::uint64_t capped(std::int64_t value) {
  constexpr std::int64_t kCap = std::int64_t{1} << 40;
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(value, 0, kCap));
}

std::uint64_t size(const AttentionProblem& p) {
  std::uint64_t sum = 0;
  for (const std::int64_t extent :
       {p.batch, p.num_heads, p.num_kv_heads, p.q_len, p.kv_len, p.head_dim, p.v_head_dim})
    sum += capped(extent);
  for (const auto* list : {&p.cu_seqlens_q, &p.cu_seqlens_k}) sum += list->size();
  return sum;
}

template <class E>
std::uint64_t rank_of(E value) {
  return static_cast<std::uint64_t>(value);
}

/// Of a kind that can be listed: off, then listed, then the others.
template <class E>
std::uint64_t listed_rank(E value) {
  if (value == E{}) return 0;
  return value == E::list ? 1 : 1 + rank_of(value);
}

std::uint64_t mask_rank(MaskKind kind) {
  switch (kind) {
    case MaskKind::none: return 0;
    case MaskKind::all_true: return 1;
    case MaskKind::all_false: return 2;
    case MaskKind::list: return 3;
    default: return 3 + rank_of(kind);
  }
}

std::uint64_t dtype_rank(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0;
    case DType::f64: return 1;
    case DType::f16: return 2;
    case DType::bf16: return 3;
  }
  return 4;
}

std::uint64_t family_rank(Family family) {
  switch (family) {
    case Family::list: return 0;
    case Family::zeros: return 1;
    case Family::integers: return 2;
    case Family::gaussian: return 3;
    default: return 4 + rank_of(family);
  }
}

std::uint64_t axes_rank(const Axes& axes) { return !axes.b + !axes.h + !axes.q + !axes.k; }

std::uint64_t choices(const AttentionProblem& p) {
  const AttentionProblem defaults;
  const bool keep_drawn = p.dropout_p > 0 && p.literal.keep.empty();
  const bool blocks_drawn = p.blocks && p.literal.blocks.empty();
  return dtype_rank(p.dtype) + rank_of(p.base) + rank_of(p.align) + mask_rank(p.mask) +
         axes_rank(p.mask_axes) + listed_rank(p.bias) + axes_rank(p.bias_axes) +
         axes_rank(p.block_axes) + (p.t5_buckets != defaults.t5_buckets) +
         (p.t5_max_distance != defaults.t5_max_distance) + !p.t5_bidirectional +
         (p.block_q != defaults.block_q) + (p.block_k != defaults.block_k) + rank_of(p.alibi) +
         listed_rank(p.slopes) + listed_rank(p.sink) + rank_of(p.rope) + rank_of(p.layout) +
         family_rank(p.data) + (p.v_data ? family_rank(*p.v_data) : 0) + keep_drawn + blocks_drawn +
         rank_of(p.cache) + rank_of(p.pages) + family_rank(p.d_o_data) + p.d_lse +
         p.d_o_layout.has_value() +
         static_cast<std::uint64_t>(std::count(p.no_gradient.begin(), p.no_gradient.end(), true));
}

std::uint64_t positions(const AttentionProblem& p) {
  std::uint64_t sum = 0;
  for (const auto* list : {&p.q_offset, &p.prefix_len, &p.seqlens_q, &p.seqlens_k, &p.left_pad_q,
                           &p.left_pad_k, &p.cu_seqlens_q, &p.cu_seqlens_k, &p.positions})
    for (const std::int64_t entry : *list) sum += capped(std::abs(entry));
  return sum + capped(p.window_left + 1) + capped(p.window_right + 1) + capped(p.global_tokens) +
         capped(p.rope_dim) + capped(p.cache_rows) + capped(p.page_size) + capped(p.num_splits);
}

std::uint64_t numbers(const AttentionProblem& p) {
  const AttentionProblem defaults;
  std::uint64_t sum = number_rank(p.softcap) + number_rank(p.dropout_p) +
                      (p.scale ? number_rank(*p.scale) : 0) +
                      (p.rope_base != defaults.rope_base ? 1 + number_rank(p.rope_base) : 0) +
                      number_rank(p.rope_scale) + number_rank(p.rope_ntk);
  const Literal& given = p.literal;
  for (const auto* values : {&given.q, &given.k, &given.v, &given.bias, &given.sink, &given.slopes,
                             &given.d_o, &given.d_lse})
    for (const double value : *values) sum += number_rank(value);
  // A visible entry, a set block and a kept weight are the plain case.
  for (const auto* values : {&given.mask, &given.blocks, &given.keep})
    for (const double value : *values) sum += value == 0;
  return sum;
}

}  // namespace

std::uint64_t number_rank(double value) {
  if (value == 0) return std::signbit(value) ? 6 : 0;
  if (!std::isfinite(value)) return 1u << 20;
  if (value == 1) return 1;
  if (value == -1) return 2;
  const double magnitude = std::fabs(value);
  const std::uint64_t negative = value < 0;
  if (magnitude <= 1024 && magnitude == std::trunc(magnitude))
    return 4 + 2 * static_cast<std::uint64_t>(magnitude) + negative;
  if (magnitude == 0.5 || magnitude == 0.25) return 8 + negative;
  // Few significant bits first, then near to 1.
  const auto bits = std::bit_cast<std::uint64_t>(magnitude);
  const auto fraction = bits & 0x000f'ffff'ffff'ffffu;
  const auto significant =
      static_cast<std::uint64_t>(fraction ? 53 - std::countr_zero(fraction) : 1);
  const auto exponent = std::abs(static_cast<std::int64_t>(bits >> 52) - 1023);
  return 4096 + 4096 * significant + 2 * static_cast<std::uint64_t>(exponent) + negative;
}

Complexity complexity(const AttentionProblem& problem) {
  std::uint64_t features = 0;
  for (const Switch& feature : switches()) features += feature.on(problem);
  return {features,           size(problem),    choices(problem),
          positions(problem), numbers(problem), problem.seed};
}

}  // namespace attest
