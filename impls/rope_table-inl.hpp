// SPDX-License-Identifier: Apache-2.0
// The rotation of one row, for one SIMD target. impls/rope_table.hpp includes this once for each.
#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE void Turn(V cosine, V sine, V& x, V& y) {
  const V turned = hn::NegMulAdd(y, sine, hn::Mul(x, cosine));
  y = hn::MulAdd(x, sine, hn::Mul(y, cosine));
  x = turned;
}

/// Pairs (row[t], row[t + pairs]), or (row[2t], row[2t + 1]).
template <class C>
HWY_INLINE void Rotate(C* HWY_RESTRICT row, bool interleaved, std::size_t pairs,
                       const C* HWY_RESTRICT cosines, const C* HWY_RESTRICT sines, C direction) {
  const hn::ScalableTag<C> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto sign = hn::Set(d, direction);
  hn::Vec<decltype(d)> x, y;
  std::size_t t = 0;
  for (; t + lanes <= pairs; t += lanes) {
    const auto cosine = hn::LoadU(d, cosines + t);
    const auto sine = hn::Mul(sign, hn::LoadU(d, sines + t));
    if (interleaved) {
      hn::LoadInterleaved2(d, row + 2 * t, x, y);
      Turn(cosine, sine, x, y);
      hn::StoreInterleaved2(x, y, d, row + 2 * t);
    } else {
      x = hn::LoadU(d, row + t);
      y = hn::LoadU(d, row + t + pairs);
      Turn(cosine, sine, x, y);
      hn::StoreU(x, d, row + t);
      hn::StoreU(y, d, row + t + pairs);
    }
  }
  for (; t < pairs; ++t) {
    C& first = row[interleaved ? 2 * t : t];
    C& second = row[interleaved ? 2 * t + 1 : t + pairs];
    const C a = first, b = second, sine = direction * sines[t];
    first = a * cosines[t] - b * sine;
    second = a * sine + b * cosines[t];
  }
}

// The dispatch table has no room for templates.
void RotateFloat(float* row, bool interleaved, std::size_t pairs, const float* cosines,
                 const float* sines, float direction) {
  Rotate(row, interleaved, pairs, cosines, sines, direction);
}
void RotateDouble(double* row, bool interleaved, std::size_t pairs, const double* cosines,
                  const double* sines, double direction) {
  Rotate(row, interleaved, pairs, cosines, sines, direction);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();
