// SPDX-License-Identifier: Apache-2.0
// The data families: q, k and v of a problem, each value a function of (seed, tensor, coordinates).
#pragma once

#include <cstdint>

#include "attest/inputs.hpp"

namespace attest {

/// The second coordinate of mix(): which tensor a value belongs to. Part of what a case line means:
/// numbers are never reused.
enum class Stream : std::uint64_t {
  q = 1,
  k = 2,
  v = 3,
  bias = 4,
  bias_hole = 5,
  mask = 6,
  blocks = 7,
  keep = 8,
  slopes = 9,
  sink = 10,
  t5_table = 11,
  pattern = 12,  ///< choices that q and k share: needle keys, outlier channels
  d_o = 13,
  d_lse = 14,
};

/// One more coordinate. Bijective in each argument; six of them after each other are mix().
constexpr std::uint64_t absorb(std::uint64_t state, std::uint64_t coordinate) {
  std::uint64_t z = state + 0x9e3779b97f4a7c15u * (coordinate + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The state of a row (a, b, c), from which absorb(state, d) gives the bits of its elements.
constexpr std::uint64_t row_state(std::uint64_t seed, Stream stream, std::int64_t a, std::int64_t b,
                                  std::int64_t c) {
  std::uint64_t state = absorb(0, seed);
  state = absorb(state, static_cast<std::uint64_t>(stream));
  state = absorb(state, static_cast<std::uint64_t>(a));
  state = absorb(state, static_cast<std::uint64_t>(b));
  return absorb(state, static_cast<std::uint64_t>(c));
}

/// Nearly normal: the sum of eight 16-bit uniforms, centred and scaled to variance 1 - 2^-32. Its
/// largest magnitude is 4.9, its excess kurtosis -0.15. The sum is an exact integer and the scaling
/// one multiplication, so that the bits are the same everywhere.
double gaussian(std::uint64_t bits);

/// In [-1, 1), a multiple of half an ulp below 1 of the storage type: exact in it.
double uniform(std::uint64_t bits, DType dtype);

/// In [0, 1), 53 bits.
constexpr double fraction(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// A bucket below `count` that moves only for keys of the bucket that disappears when count shrinks
/// by one (Lamping and Veach 2014, "A fast, minimal memory, consistent hash algorithm", with
/// integer division). 0 for count <= 1.
std::int64_t consistent_choice(std::uint64_t key, std::int64_t count);

/// Fills q, k and v, rounded to the storage type. Literal values are not looked at.
void fill_qkv(const AttentionProblem& problem, AttentionInputs& inputs);
/// Fills dO by problem.d_o_data as v is filled, with the query row in place of the key.
void fill_d_o(const AttentionProblem& problem, AttentionInputs& inputs);

}  // namespace attest
