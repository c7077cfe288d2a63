// SPDX-License-Identifier: Apache-2.0
// RoPE (Su et al. 2021): docs/semantics.md section 4. Step 0 of the forward pass.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "attest/problem.hpp"
#include "reference/number.hpp"

namespace attest {

/// What the angles depend on: position and pair apart, R, base, linear scaling and NTK factor.
struct RopeParameters {
  std::int64_t rope_dim = 0;
  double base = 0, scale = 1, ntk = 1;
  auto operator<=>(const RopeParameters&) const = default;
};

inline RopeParameters rope_parameters(const AttentionProblem& problem) {
  return {effective_rope_dim(problem), problem.rope_base, problem.rope_scale, problem.rope_ntk};
}

/// theta_t(1) = base'^(-2t/R) / s, t in [0, R/2); base' = base ntk^(R/(R-2)), R > 2 where ntk != 1.
template <Number T>
T rope_frequency(const RopeParameters& rope, std::int64_t t) {
  using std::pow;
  const T dim(static_cast<double>(rope.rope_dim));
  T base(rope.base);
  if (rope.ntk != 1) base = base * pow(T(rope.ntk), T(dim / (dim - T(2.0))));
  return pow(base, T(T(-2.0 * static_cast<double>(t)) / dim)) / T(rope.scale);
}

template <Number T>
struct Rotation {
  T cos, sin;
};

/// The frequencies of all pairs.
template <Number T>
std::vector<T> rope_frequencies(const RopeParameters& rope) {
  std::vector<T> frequencies;
  for (std::int64_t t = 0; t < rope.rope_dim / 2; ++t)
    frequencies.push_back(rope_frequency<T>(rope, t));
  return frequencies;
}

/// cos and sin of theta_t(position) for every pair t, straight from the formula.
template <Number T>
std::vector<Rotation<T>> rotations(const std::vector<T>& frequencies, std::int64_t position) {
  using std::cos, std::sin;
  std::vector<Rotation<T>> pairs;
  for (const T& frequency : frequencies) {
    const T angle = T(static_cast<double>(position)) * frequency;
    pairs.push_back({cos(angle), sin(angle)});
  }
  return pairs;
}

/// The same, remembered per thread: 32 pairs take 0.1 ms, and every row of a problem needs every
/// key's. Holds at most 2^18 angles (40 MB at 100 digits) and starts over beyond that.
template <Number T>
const std::vector<Rotation<T>>& cached_rotations(const RopeParameters& rope,
                                                 std::int64_t position) {
  constexpr std::size_t kMaxAngles = std::size_t{1} << 18;
  thread_local RopeParameters current;
  thread_local std::vector<T> frequencies;
  thread_local std::unordered_map<std::int64_t, std::vector<Rotation<T>>> by_position;
  if (rope != current) {
    current = rope;
    frequencies = rope_frequencies<T>(rope);
    by_position.clear();
  }
  if (by_position.size() * frequencies.size() > kMaxAngles) by_position.clear();
  const auto found = by_position.find(position);
  if (found != by_position.end()) return found->second;
  return by_position.emplace(position, rotations(frequencies, position)).first->second;
}

/// Rotates one row of q or k: a pair (x, y) becomes (x cos - y sin, x sin + y cos). `interleaved`
/// pairs channels (2t, 2t+1), `half` pairs (t, t + R/2); channels >= R pass through.
template <Number T>
void rotate(std::vector<T>& row, RopePairing pairing, const std::vector<Rotation<T>>& pairs) {
  const std::size_t half = pairs.size();
  for (std::size_t t = 0; t < half; ++t) {
    const bool interleaved = pairing == RopePairing::interleaved;
    T& x = row[interleaved ? 2 * t : t];
    T& y = row[interleaved ? 2 * t + 1 : t + half];
    const T rotated_x = x * pairs[t].cos - y * pairs[t].sin;
    y = x * pairs[t].sin + y * pairs[t].cos;
    x = rotated_x;
  }
}

}  // namespace attest
