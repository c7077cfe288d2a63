// SPDX-License-Identifier: Apache-2.0
// RoPE as its authors wrote it (Su et al., RoFormer, 2021): a pair of channels is a complex number,
// and a position multiplies it by e^(i theta). Angles are computed here, in double; a caller who
// needs more gives the factors. docs/semantics.md, section 4.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "attest/plugin.h"

namespace attest {

/// theta_t(1) for every pair t of the rope_dim rotated channels: base'^(-2t/R) / scale, with
/// base' = base * ntk^(R/(R-2)).
inline std::vector<double> rope_frequencies(std::int64_t rope_dim, double base, double scale = 1,
                                            double ntk = 1) {
  const auto dims = static_cast<double>(rope_dim);
  if (ntk != 1) base *= std::pow(ntk, dims / (dims - 2));
  std::vector<double> frequencies;
  for (std::int64_t t = 0; t < rope_dim / 2; ++t)
    frequencies.push_back(std::pow(base, -2 * static_cast<double>(t) / dims) / scale);
  return frequencies;
}

/// Multiplies pair t of the row's first rope_dim channels by turn(t), or by its conjugate where
/// direction is -1. Pairing is ATTEST_ROPE_INTERLEAVED or ATTEST_ROPE_HALF.
template <class C, class Turn>
void rope_complex_by(C* row, std::int32_t pairing, std::int64_t rope_dim, int direction,
                     Turn&& turn) {
  const std::int64_t pairs = rope_dim / 2;
  const bool interleaved = pairing == ATTEST_ROPE_INTERLEAVED;
  for (std::int64_t t = 0; t < pairs; ++t) {
    C& real = row[interleaved ? 2 * t : t];
    C& imaginary = row[interleaved ? 2 * t + 1 : t + pairs];
    const std::complex<double> factor = turn(t);
    const std::complex<double> turned =
        std::complex<double>(real, imaginary) * (direction < 0 ? std::conj(factor) : factor);
    real = static_cast<C>(turned.real());
    imaginary = static_cast<C>(turned.imag());
  }
}

/// row := R(position) row; with direction -1 the way back, R(-position) row.
template <class C>
void rope_complex(C* row, std::int32_t pairing, const std::vector<double>& frequencies,
                  std::int64_t position, int direction = 1) {
  const auto rope_dim = 2 * static_cast<std::int64_t>(frequencies.size());
  rope_complex_by(row, pairing, rope_dim, direction, [&](std::int64_t t) {
    return std::polar(1.0,
                      static_cast<double>(position) * frequencies[static_cast<std::size_t>(t)]);
  });
}

}  // namespace attest
