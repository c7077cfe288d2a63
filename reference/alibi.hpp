// SPDX-License-Identifier: Apache-2.0
// ALiBi (Press et al. 2022): docs/semantics.md section 4.
#pragma once

#include <bit>
#include <cstdint>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/number.hpp"

namespace attest {

/// The default slope of head h of H: with n = 2^floor(log2 H), 2^(-8(h+1)/n) for h < n, else
/// 2^(-4(2(h-n)+1)/n). The exponent is an exact double, n being a power of two.
template <Number T>
T standard_slope(std::int64_t h, std::int64_t num_heads) {
  using std::pow;
  const auto n = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_heads)));
  const std::int64_t numerator = h < n ? -8 * (h + 1) : -4 * (2 * (h - n) + 1);
  return pow(T(2.0), T(static_cast<double>(numerator) / static_cast<double>(n)));
}

/// slopes[b|0, h].
template <class T>
T slope_at(const RealTensors<T>& inputs, std::int64_t b, std::int64_t h) {
  return inputs.slopes.values[inputs.slopes.broadcast_index(b, h, 0, 0)];
}

/// alibi_ij: -m|qpos - kpos|, m(kpos - qpos), or m kpos. Positions are exact integers.
template <Number T>
T alibi_term(AlibiKind kind, const T& slope, std::int64_t query_position,
             std::int64_t key_position) {
  const T qp(static_cast<double>(query_position)), kp(static_cast<double>(key_position));
  switch (kind) {
    case AlibiKind::none: return T(0.0);
    case AlibiKind::absolute: return qp < kp ? T(slope * (qp - kp)) : T(slope * (kp - qp));
    case AlibiKind::signed_: return slope * (kp - qp);
    case AlibiKind::key_anchored: return slope * kp;
  }
  return T(0.0);
}

}  // namespace attest
