// SPDX-License-Identifier: Apache-2.0
// Inputs and random choices for the tests of this room. Values are multiples of 1/8 in [-2, 2], so
// that every storage type holds them and expected values can be worked out exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/definition.hpp"

namespace attest::testing_support {

/// |a - b|, 0 for the same infinity or two NaN.
inline double distance(const ExactNumber& a, const ExactNumber& b) {
  if (std::isnan(a.high) && std::isnan(b.high)) return 0;
  if (a.high == b.high) return std::abs(a.low - b.low);
  return std::abs((a.high - b.high) + (a.low - b.low));
}

/// 1e-30 of |a|, or of 1: what a sum of two doubles certainly holds.
inline bool same(const ExactNumber& a, const ExactNumber& b) {
  return distance(a, b) <= 1e-30 * std::max(1.0, std::abs(a.high));
}

inline bool same(const ExactRow& a, const ExactRow& b) {
  if (a.o.size() != b.o.size() || !same(a.lse, b.lse)) return false;
  for (std::size_t c = 0; c < a.o.size(); ++c)
    if (!same(a.o[c], b.o[c])) return false;
  return true;
}

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u) {}
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t x = state_;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  double value() { return static_cast<double>(between(-16, 16)) / 8; }

 private:
  std::uint64_t state_;
};

inline std::int64_t extent(bool stored, std::int64_t full) { return stored ? full : 1; }

inline std::array<std::int64_t, 4> shape_of(const Axes& axes, std::int64_t b, std::int64_t h,
                                            std::int64_t q, std::int64_t k) {
  return {extent(axes.b, b), extent(axes.h, h), extent(axes.q, q), extent(axes.k, k)};
}

/// Every tensor that the problem's fields ask for. Masks, blocks and keep are random with three in
/// four set; bias is random, with one entry in four -inf or lowest where its kind says so.
inline AttentionInputs random_inputs(const AttentionProblem& p, std::uint64_t seed) {
  Random random(seed);
  const auto fill = [&](Dense<double>& tensor, std::array<std::int64_t, 4> shape) {
    tensor = Dense<double>(shape);
    for (double& x : tensor.values) x = random.value();
  };
  const auto fill_bits = [&](Dense<std::uint8_t>& tensor, std::array<std::int64_t, 4> shape) {
    tensor = Dense<std::uint8_t>(shape);
    for (std::uint8_t& x : tensor.values) x = !random.one_in(4);
  };
  AttentionInputs inputs;
  fill(inputs.q, {p.batch, p.num_heads, p.q_len, p.head_dim});
  fill(inputs.k, {p.batch, p.num_kv_heads, p.kv_len, p.head_dim});
  fill(inputs.v, {p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim});
  if (p.bias != BiasKind::none) {
    fill(inputs.bias, shape_of(p.bias_axes, p.batch, p.num_heads, p.q_len, p.kv_len));
    for (double& x : inputs.bias.values) {
      if (p.bias == BiasKind::neg_inf && random.one_in(4))
        x = -std::numeric_limits<double>::infinity();
      if (p.bias == BiasKind::lowest && random.one_in(4)) x = -limits(p.dtype).max_finite;
    }
  }
  if (p.alibi != AlibiKind::none)
    fill(inputs.slopes, {p.slopes == SlopesKind::per_batch ? p.batch : 1, p.num_heads, 1, 1});
  if (p.sink != SinkKind::none) fill(inputs.sink, {1, p.num_heads, 1, 1});
  if (p.mask != MaskKind::none)
    fill_bits(inputs.mask, shape_of(p.mask_axes, p.batch, p.num_heads, p.q_len, p.kv_len));
  if (p.blocks)
    fill_bits(inputs.blocks,
              shape_of(p.block_axes, p.batch, p.num_heads, (p.q_len + p.block_q - 1) / p.block_q,
                       (p.kv_len + p.block_k - 1) / p.block_k));
  if (p.dropout_p > 0) fill_bits(inputs.keep, {p.batch, p.num_heads, p.q_len, p.kv_len});
  return inputs;
}

/// Ascending cut points 0 = cut[0] <= ... <= cut[segments] <= length.
inline std::vector<std::int64_t> random_cuts(Random& random, std::int64_t segments,
                                             std::int64_t length) {
  std::vector<std::int64_t> cuts{0};
  for (std::int64_t s = 0; s < segments; ++s) cuts.push_back(random.between(0, length));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// A small problem that mixes every factor of visibility: packed or with lengths and pads, any
/// alignment, base, window and global tokens, mask and blocks.
inline AttentionProblem random_masked_problem(std::uint64_t seed) {
  Random random(seed);
  AttentionProblem p;
  p.batch = random.between(1, 3);
  p.num_kv_heads = random.between(1, 2);
  p.num_heads = p.num_kv_heads * random.between(1, 3);
  p.q_len = random.between(1, 9);
  p.kv_len = random.between(1, 9);
  p.head_dim = random.between(1, 4);
  p.v_head_dim = random.between(1, 4);
  if (random.one_in(2)) {
    p.batch = 1;
    const std::int64_t segments = random.between(1, 4);
    p.cu_seqlens_q = random_cuts(random, segments, p.q_len);
    p.cu_seqlens_k = random_cuts(random, segments, p.kv_len);
  } else {
    const bool q_ranges = random.one_in(2), k_ranges = random.one_in(2);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      if (q_ranges) {
        p.seqlens_q.push_back(random.between(0, p.q_len));
        p.left_pad_q.push_back(random.between(0, p.seqlens_q.back()));
      }
      if (k_ranges) {
        p.seqlens_k.push_back(random.between(0, p.kv_len));
        p.left_pad_k.push_back(random.between(0, p.seqlens_k.back()));
      }
    }
  }
  p.align = static_cast<Align>(random.between(0, 2));
  p.base = static_cast<Base>(random.between(0, 2));
  for (std::int64_t n = 0; n < num_sequences(p); ++n) {
    if (p.align == Align::q_offset) p.q_offset.push_back(random.between(-4, 6));
    if (p.base == Base::prefix) p.prefix_len.push_back(random.between(0, 5));
  }
  if (random.one_in(2)) {
    p.window_left = random.between(-1, 4);
    p.window_right = random.between(-1, 4);
    if (p.window_left >= 0 || p.window_right >= 0) p.global_tokens = random.between(0, 2);
  }
  const auto random_axes = [&] {
    return Axes{random.one_in(2), random.one_in(2), random.one_in(2), random.one_in(2)};
  };
  if (random.one_in(2)) {
    p.mask = MaskKind::random;
    p.mask_axes = random_axes();
  }
  if (random.one_in(3)) {
    p.blocks = true;
    p.block_axes = {random.one_in(2), random.one_in(2), true, true};
    p.block_q = random.between(1, 4);
    p.block_k = random.between(1, 4);
  }
  return p;
}

/// The same with scores of every kind on top.
inline AttentionProblem random_problem(std::uint64_t seed) {
  AttentionProblem p = random_masked_problem(seed);
  Random random(seed + 0x5eed);
  if (random.one_in(2)) p.scale = random.value();
  if (random.one_in(3)) p.softcap = static_cast<double>(random.between(1, 24)) / 8;
  if (random.one_in(4)) p.dropout_p = 0.25;
  if (random.one_in(2)) {
    constexpr BiasKind kKinds[] = {BiasKind::normal, BiasKind::neg_inf, BiasKind::lowest};
    p.bias = kKinds[random.between(0, 2)];
    p.bias_axes = {random.one_in(2), random.one_in(2), random.one_in(2), random.one_in(2)};
  }
  p.alibi = static_cast<AlibiKind>(random.between(0, 3));
  if (p.alibi != AlibiKind::none) {
    p.alibi_inside_softcap = p.softcap > 0 && random.one_in(2);
    if (random.one_in(2)) p.slopes = SlopesKind::per_batch;
  }
  if (random.one_in(3)) p.sink = SinkKind::normal;
  if (p.head_dim >= 2 && random.one_in(3)) {
    p.rope = random.one_in(2) ? RopePairing::half : RopePairing::interleaved;
    p.rope_dim = 2 * random.between(1, p.head_dim / 2);
    p.rope_scale = random.one_in(2) ? 1 : 4;
    if (p.rope_dim > 2 && random.one_in(2)) p.rope_ntk = 2;
  }
  p.empty_output = static_cast<EmptyOutput>(random.between(0, 3));
  p.empty_lse = static_cast<EmptyLse>(random.between(0, 3));
  return p;
}

/// The inputs of random_inputs() with dO and, but for one in four, dLSE; one sink in three is -inf.
inline AttentionInputs random_backward_inputs(const AttentionProblem& p, std::uint64_t seed) {
  AttentionInputs inputs = random_inputs(p, seed);
  Random random(seed ^ 0x6772);
  inputs.d_o = Dense<double>({p.batch, p.num_heads, p.q_len, p.v_head_dim});
  for (double& x : inputs.d_o.values) x = random.value();
  if (!random.one_in(4)) {
    inputs.d_lse = Dense<double>({p.batch, p.num_heads, p.q_len, 1});
    for (double& x : inputs.d_lse.values) x = random.value();
  }
  if (p.sink != SinkKind::none && random.one_in(3))
    inputs.sink.values[0] = -std::numeric_limits<double>::infinity();
  return inputs;
}

}  // namespace attest::testing_support
