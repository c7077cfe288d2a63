// SPDX-License-Identifier: Apache-2.0
// Float arithmetic done in the ways that real kernels do it, and the data that the derivation of
// each term of the tolerance fears. For tests of the tolerance, forward and backward.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/alibi.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"
#include "reference/testing.hpp"
#include "reference/visible.hpp"

namespace attest::testing_support {

enum class Accumulator { nearest, truncating, half };

/// How a kernel computes; the profile that it would declare follows from it.
struct Style {
  Accumulator accumulator = Accumulator::nearest;
  int block = 64;               ///< keys per step of the online softmax
  bool backwards = false;       ///< takes the blocks in descending order
  bool exp2 = false;            ///< exp2 of scores multiplied by log2 e beforehand
  bool lanes = false;           ///< dot products in eight partial sums
  bool rounds_p = false;        ///< P in the storage type before P.V
  bool l_from_rounded = false;  ///< l sums that P
  bool tf32 = false;            ///< q, k and v rounded to 11 bits
  bool before_rope = false;     ///< and that before they are rotated
  bool stores_score = false;    ///< z passes through bf16
  bool keep_last = false;       ///< multiplies o by the dropout factor at the end instead of P
  int parts = 1;                ///< ranges of keys computed apart and merged through their lse
};

inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

inline float to_tf32(float x) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  bits += 0xfff + ((bits >> 13) & 1);
  return std::bit_cast<float>(bits & ~std::uint32_t{0x1fff});
}

struct Kernel {
  const AttentionProblem& problem;
  const AttentionInputs& inputs;
  const Style& style;
  std::int64_t b, h, i;
  const Rows& rows;

  /// The result of one operation that an accumulator takes part in.
  float accumulated(double exact) const {
    const auto nearest = static_cast<float>(exact);
    switch (style.accumulator) {
      case Accumulator::nearest: return nearest;
      case Accumulator::truncating:
        return std::fabs(nearest) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
      case Accumulator::half: return static_cast<float>(round_to(DType::f16, exact));
    }
    return nearest;
  }
  float add(float a, float c) const { return accumulated(static_cast<double>(a) + c); }
  /// Outside the accumulators: to nearest, in f16 where all is f16.
  float rounded(double exact) const {
    return style.accumulator == Accumulator::half ? static_cast<float>(round_to(DType::f16, exact))
                                                  : static_cast<float>(exact);
  }
  float multiply(float a, float c) const { return rounded(static_cast<double>(a) * c); }
  float power(float x) const {
    if (style.accumulator == Accumulator::half)
      return rounded(style.exp2 ? std::exp2(static_cast<double>(x))
                                : std::exp(static_cast<double>(x)));
    return style.exp2 ? std::exp2(x) : std::exp(x);
  }

  std::vector<float> row_of(const Dense<double>& tensor, std::int64_t head, std::int64_t row,
                            std::int64_t position) const {
    std::vector<float> x;
    for (std::int64_t c = 0; c < tensor.shape[3]; ++c)
      x.push_back(static_cast<float>(tensor.at(b, head, row, c)));
    if (style.tf32 && style.before_rope)
      for (float& value : x) value = to_tf32(value);
    if (problem.rope != RopePairing::none && (&tensor == &inputs.q || &tensor == &inputs.k)) {
      const std::int64_t half = effective_rope_dim(problem) / 2;
      for (std::int64_t t = 0; t < half; ++t) {
        const bool interleaved = problem.rope == RopePairing::interleaved;
        float& first = x[static_cast<std::size_t>(interleaved ? 2 * t : t)];
        float& second = x[static_cast<std::size_t>(interleaved ? 2 * t + 1 : t + half)];
        const RopeAngle angle = rope_angle(problem, position, t);
        const float cos = rounded(angle.cos_high), sin = rounded(angle.sin_high);
        const float turned =
            rounded(static_cast<double>(multiply(first, cos)) - multiply(second, sin));
        second = rounded(static_cast<double>(multiply(first, sin)) + multiply(second, cos));
        first = turned;
      }
    }
    if (style.tf32 && !style.before_rope)
      for (float& value : x) value = to_tf32(value);
    return x;
  }

  float dot(const std::vector<float>& a, const std::vector<float>& c) const {
    const std::size_t width = style.lanes ? 8 : 1;
    std::vector<float> partial(width, 0.0f);
    for (std::size_t x = 0; x < a.size(); ++x)
      partial[x % width] = add(partial[x % width], multiply(a[x], c[x]));
    float sum = 0;
    for (const float x : partial) sum = add(sum, x);
    return sum;
  }

  float score(const std::vector<float>& q, std::int64_t j) const {
    const std::int64_t qp = qpos(rows.of_query(i), i), kp = kpos(rows.of_key(j), j);
    const float unit = rounded(style.exp2 && !(problem.softcap > 0) ? kLog2E : 1.0);
    const float scale = multiply(rounded(effective_scale(problem)), unit);
    float a = multiply(dot(q, row_of(inputs.k, kv_head(problem, h), j, kp)), scale);
    float alibi = 0;
    if (problem.alibi != AlibiKind::none) {
      const float slope = multiply(static_cast<float>(slope_at(inputs, b, h)), unit);
      alibi = multiply(slope, static_cast<float>(alibi_term(problem.alibi, 1.0, qp, kp)));
    }
    if (problem.alibi_inside_softcap) a = rounded(static_cast<double>(a) + alibi);
    const auto cap = static_cast<float>(problem.softcap);
    if (cap > 0) a = multiply(cap, rounded(std::tanh(rounded(a / cap))));
    if (!problem.alibi_inside_softcap) a = rounded(static_cast<double>(a) + alibi);
    if (inputs.bias.present)
      a = rounded(static_cast<double>(a) +
                  multiply(static_cast<float>(bias_at(inputs, b, h, i, j)), unit));
    if (style.stores_score) a = static_cast<float>(round_to(DType::bf16, a));
    return style.exp2 && problem.softcap > 0 ? multiply(a, rounded(kLog2E)) : a;
  }

  std::vector<std::int64_t> keys_of_row() const {
    std::vector<std::int64_t> keys;
    for (const std::int64_t j : visible_keys(problem, inputs, rows, b, h, i))
      if (!bias_hides(inputs, b, h, i, j)) keys.push_back(j);
    if (style.backwards) std::reverse(keys.begin(), keys.end());
    return keys;
  }

  void run(std::vector<float>& o, float& lse) const {
    merge(o, lse);
    for (float& value : o) value = static_cast<float>(round_to(problem.dtype, value));
  }

  /// o = sum of exp(lse_s - lse) o_s as flash-decoding kernels combine their splits: with rounded
  /// exponents the weights need not sum to 1, and nothing divides by their sum. Plain where there
  /// is one part.
  void merge(std::vector<float>& o, float& lse) const {
    const std::vector<std::int64_t> keys = keys_of_row();
    if (style.parts == 1) return part(keys, true, o, lse);
    const std::size_t size = keys.size() / static_cast<std::size_t>(style.parts) + 1;
    std::vector<std::vector<float>> outputs;
    std::vector<float> logs;
    for (std::size_t begin = 0; begin < keys.size(); begin += size) {
      const auto first = keys.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last =
          keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), begin + size));
      part({first, last}, begin == 0, outputs.emplace_back(), logs.emplace_back());
    }
    const float top = *std::max_element(logs.begin(), logs.end());
    float sum = 0;
    for (const float part_lse : logs) sum = add(sum, std::exp(part_lse - top));
    lse = top + std::log(sum);
    o.assign(outputs.front().size(), 0.0f);
    for (std::size_t s = 0; s < logs.size(); ++s)
      for (std::size_t c = 0; c < o.size(); ++c)
        o[c] = add(o[c], multiply(std::exp(logs[s] - lse), outputs[s][c]));
  }

  /// Online softmax over these keys, and the sink if it is theirs; writes o, not yet in the storage
  /// type, and lse.
  void part(const std::vector<std::int64_t>& keys, bool has_sink, std::vector<float>& o,
            float& lse) const {
    const auto q = row_of(inputs.q, h, i, qpos(rows.of_query(i), i));
    const float factor = rounded(1 / (1 - problem.dropout_p));

    o.assign(static_cast<std::size_t>(problem.v_head_dim), 0.0f);
    float m = -std::numeric_limits<float>::infinity(), l = 0;
    const double sink = sink_at(inputs, h);
    if (has_sink && sink != -std::numeric_limits<double>::infinity())
      m = multiply(static_cast<float>(sink), rounded(style.exp2 ? kLog2E : 1.0)), l = 1;
    const auto block = static_cast<std::size_t>(style.block);
    for (std::size_t begin = 0; begin < keys.size(); begin += block) {
      const std::size_t end = std::min(keys.size(), begin + block);
      std::vector<float> z;
      float top = m;
      for (std::size_t x = begin; x < end; ++x) {
        z.push_back(score(q, keys[x]));
        top = std::max(top, z.back());
      }
      // exactly 1 where the maximum does not move: an error here would compound once per block
      const float alpha = m == top ? 1.0f : power(rounded(static_cast<double>(m) - top));
      m = top;
      l = multiply(l, alpha);
      for (float& value : o) value = multiply(value, alpha);
      for (std::size_t x = begin; x < end; ++x) {
        const float p = power(rounded(static_cast<double>(z[x - begin]) - m));
        const float stored = style.rounds_p ? static_cast<float>(round_to(problem.dtype, p)) : p;
        l = add(l, style.l_from_rounded ? stored : p);
        float kept = stored;
        if (inputs.keep.present) {
          if (inputs.keep.at(b, h, i, keys[x]) == 0) continue;
          if (!style.keep_last) kept = multiply(kept, factor);
        }
        const auto v = row_of(inputs.v, kv_head(problem, h), keys[x], 0);
        for (std::size_t c = 0; c < o.size(); ++c)
          o[c] = accumulated(o[c] + static_cast<double>(kept) * v[c]);
      }
    }
    for (float& value : o) {
      value = rounded(static_cast<double>(value) / l);
      if (inputs.keep.present && style.keep_last) value = multiply(value, factor);
    }
    const float log_l = rounded(std::log(static_cast<double>(l)));
    lse = rounded(static_cast<double>(style.exp2 ? multiply(m, rounded(kLn2)) : m) + log_l);
  }
};

inline PrecisionProfile profile_of(const AttentionProblem& problem, const Style& style) {
  const DTypeLimits type = limits(problem.dtype);
  PrecisionProfile profile;
  profile.u_out = type.unit_roundoff;
  profile.eta_out = type.half_min_subnormal;
  if (style.rounds_p) profile.u_p = type.unit_roundoff, profile.eta_p = type.half_min_subnormal;
  profile.l_from_rounded = style.l_from_rounded;
  if (style.tf32) profile.u_in = 0x1p-11, profile.eta_in = 0x1p-137;
  if (style.stores_score) profile.u_score = 0x1p-8, profile.eta_score = 0x1p-134;
  profile.lse_merged = style.parts > 1;
  if (style.accumulator == Accumulator::truncating) profile.c_acc = 2;
  if (style.accumulator == Accumulator::half) {
    profile.u_acc = 0x1p-11;
    profile.eta_acc = profile.eta_exp = 0x1p-25;
    profile.e_exp = 0x1p-9;
    profile.max_acc = 65504;
  }
  return profile;
}

inline double bell(Random& random) {
  double sum = 0;
  for (int n = 0; n < 4; ++n) sum += static_cast<double>(random.bits() >> 11) * 0x1p-53 - 0.5;
  return sum * std::sqrt(3.0);
}

/// What each term of the tolerance fears: errors that all keys share, addends that repeat, scores
/// that rise from block to block.
enum class HardData { normal, mean_k, repeated_keys, constant_v, one_signed, clusters, peaked };
inline constexpr HardData kHardData[] = {
    HardData::normal,     HardData::mean_k,   HardData::repeated_keys, HardData::constant_v,
    HardData::one_signed, HardData::clusters, HardData::peaked};

inline AttentionInputs inputs_of(const AttentionProblem& p, HardData family, std::uint64_t seed) {
  AttentionInputs inputs = testing_support::random_inputs(p, seed);
  Random random(seed ^ 0xfa);
  const auto dim = static_cast<std::size_t>(p.head_dim),
             dim_v = static_cast<std::size_t>(p.v_head_dim);
  const auto store = [&](double x) { return round_to(p.dtype, x); };
  for (double& x : inputs.q.values) x = store(bell(random) * (family == HardData::peaked ? 6 : 1));
  for (std::size_t x = 0; x < inputs.k.values.size(); ++x) {
    double k = bell(random);
    if (family == HardData::mean_k) k += 8;
    if (family == HardData::one_signed) k = std::fabs(k);
    inputs.k.values[x] = store(k);
    if (family == HardData::repeated_keys && x >= 5 * dim)
      inputs.k.values[x] = inputs.k.values[x - 5 * dim];
  }
  for (std::size_t x = 0; x < inputs.v.values.size(); ++x) {
    double v = bell(random);
    if (family == HardData::constant_v) v = 0.7;
    if (family == HardData::one_signed) v = std::fabs(v);
    if (family == HardData::clusters) v += (x / dim_v) % 2 ? 100 : -100;
    inputs.v.values[x] = store(v);
  }
  for (double& x : inputs.bias.values) x = std::isfinite(x) ? store(bell(random)) : x;
  for (std::size_t h = 0; h < inputs.slopes.values.size(); ++h)
    inputs.slopes.values[h] =
        static_cast<float>(standard_slope<double>(static_cast<std::int64_t>(h), 3));
  return inputs;
}

/// Inputs whose products are huge and cancel by pairs of channels, but for a few of them: the error
/// of a score is of its own size, of that of the softcap, or beyond what exp can say.
inline AttentionInputs cancelling_inputs(const AttentionProblem& p, std::uint64_t seed) {
  AttentionInputs inputs = testing_support::random_inputs(p, seed);
  Random random(seed ^ 0xca);
  const double sizes[] = {0, 1, 30, 512, 512, 4096};
  const auto some = [&] {
    const double size = sizes[random.between(0, 5)] * (random.between(0, 1) ? 1 : -1);
    return random.between(0, 2) ? size : size * (1 + 0.01 * bell(random));
  };
  const auto dim = static_cast<std::size_t>(p.head_dim);
  for (auto* tensor : {&inputs.q, &inputs.k}) {
    const bool alternates = tensor == &inputs.k;
    for (std::size_t x = 0; x < tensor->values.size(); ++x) {
      const bool second = x % dim % 2 == 1 && random.between(0, 7) > 0;
      const double value = second ? tensor->values[x - 1] * (alternates ? -1 : 1) : some();
      tensor->values[x] = round_to(p.dtype, value);
    }
  }
  for (double& v : inputs.v.values) v = static_cast<double>(random.between(0, 2)) - 1;
  return inputs;
}

struct CancellingCase {
  AttentionProblem problem;
  Style style;
};

inline CancellingCase cancelling_case(std::uint64_t seed) {
  const double caps[] = {0, 0.5, 1, 5, 50}, scales[] = {0.01, 0.25, 1, 2};
  const RopePairing pairings[] = {RopePairing::none, RopePairing::half, RopePairing::interleaved};
  Random random(seed);
  CancellingCase drawn;
  AttentionProblem& problem = drawn.problem;
  Style& style = drawn.style;
  problem.dtype = seed % 4 == 3 ? DType::bf16 : DType::f32;
  problem.q_len = 2;
  problem.kv_len = random.between(1, 6);
  problem.head_dim = random.between(2, random.between(0, 1) ? 6 : 100);
  problem.v_head_dim = 2;
  problem.softcap = caps[random.between(0, 4)];
  problem.scale = scales[random.between(0, 3)];
  problem.rope = pairings[random.between(0, 2)];
  if (random.between(0, 3) == 0) problem.sink = SinkKind::normal;
  if (random.between(0, 3) == 0) problem.bias = BiasKind::normal;
  if (random.between(0, 3) == 0) {
    problem.alibi = AlibiKind::signed_;
    problem.alibi_inside_softcap = problem.softcap > 0 && random.between(0, 1) == 0;
  }
  style.block = random.between(0, 1) ? 64 : 1;
  style.exp2 = random.between(0, 1) == 0;
  style.lanes = random.between(0, 1) == 0;
  style.stores_score = random.between(0, 3) == 0;
  if (random.between(0, 3) == 0) style.accumulator = Accumulator::truncating;
  if (random.between(0, 1) == 0 && problem.dtype == DType::f32)
    style.tf32 = true, style.before_rope = random.between(0, 1) == 0;
  style.rounds_p = problem.dtype == DType::bf16;
  return drawn;
}

}  // namespace attest::testing_support
