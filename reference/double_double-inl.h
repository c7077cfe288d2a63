// SPDX-License-Identifier: Apache-2.0
// Double-double arithmetic on vectors: a number is high + low with |low| <= ulp(high)/2, good to
// 2^-104. Error-free sum and product (Knuth 1969; the product through fma), operations after
// Dekker 1971 and Hida, Li and Bailey 2001. Included once per SIMD target.
//
// Relative errors: Add, Multiply, Divide 2^-102; Exp 2^-98 (1 + |x|/16); Expm1 and Tanh 2^-97;
// checked against 50 digits in double_double_test.cpp. Nothing here reorders or contracts: the
// project is compiled with -ffp-contract=off.
#if defined(ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#undef ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#else
#define ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct DoubleDouble {
  V high, low;
};

/// a b - product, exactly, for product = fl(a b). Targets without fma take the library's.
template <class D, class V>
HWY_INLINE V ProductError(D d, V a, V b, V product) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return hn::Set(d, std::fma(hn::GetLane(a), hn::GetLane(b), -hn::GetLane(product)));
#elif HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  HWY_ALIGN double x[2], y[2], z[2];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(product, d, z);
  for (int lane = 0; lane < 2; ++lane) z[lane] = std::fma(x[lane], y[lane], -z[lane]);
  return hn::Load(d, z);
#else
  (void)d;
  return hn::MulSub(a, b, product);
#endif
}

template <class V>
HWY_INLINE DoubleDouble<V> TwoSum(V a, V b) {
  const V sum = hn::Add(a, b);
  const V part = hn::Sub(sum, a);
  return {sum, hn::Add(hn::Sub(a, hn::Sub(sum, part)), hn::Sub(b, part))};
}

/// Needs |a| >= |b| or a = 0.
template <class V>
HWY_INLINE DoubleDouble<V> FastTwoSum(V a, V b) {
  const V sum = hn::Add(a, b);
  return {sum, hn::Sub(b, hn::Sub(sum, a))};
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> TwoProduct(D d, V a, V b) {
  const V product = hn::Mul(a, b);
  return {product, ProductError(d, a, b, product)};
}

template <class V>
HWY_INLINE DoubleDouble<V> Add(DoubleDouble<V> a, DoubleDouble<V> b) {
  DoubleDouble<V> sum = TwoSum(a.high, b.high);
  const DoubleDouble<V> rest = TwoSum(a.low, b.low);
  sum = FastTwoSum(sum.high, hn::Add(sum.low, rest.high));
  return FastTwoSum(sum.high, hn::Add(sum.low, rest.low));
}

template <class V>
HWY_INLINE DoubleDouble<V> Negate(DoubleDouble<V> a) {
  return {hn::Neg(a.high), hn::Neg(a.low)};
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> Multiply(D d, DoubleDouble<V> a, DoubleDouble<V> b) {
  const DoubleDouble<V> product = TwoProduct(d, a.high, b.high);
  const V cross = hn::MulAdd(a.high, b.low, hn::Mul(a.low, b.high));
  return FastTwoSum(product.high, hn::Add(product.low, cross));
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> Multiply(D d, DoubleDouble<V> a, V b) {
  const DoubleDouble<V> product = TwoProduct(d, a.high, b);
  return FastTwoSum(product.high, hn::MulAdd(a.low, b, product.low));
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> Divide(D d, DoubleDouble<V> a, DoubleDouble<V> b) {
  const V first = hn::Div(a.high, b.high);
  DoubleDouble<V> rest = Add(a, Negate(Multiply(d, b, first)));
  const V second = hn::Div(rest.high, b.high);
  rest = Add(rest, Negate(Multiply(d, b, second)));
  const V third = hn::Div(rest.high, b.high);
  const DoubleDouble<V> quotient = FastTwoSum(first, second);
  return Add(quotient, {third, hn::Zero(d)});
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE DoubleDouble<V> Constant(D d, double high, double low = 0) {
  return {hn::Set(d, high), hn::Set(d, low)};
}

/// exp(x) - 1 for |x| <= ln(2)/2: the Taylor series at x/16, then four times e := 2e + e^2, which
/// keeps the relative error of small x.
template <class D, class V>
HWY_INLINE DoubleDouble<V> Expm1Reduced(D d, DoubleDouble<V> x) {
  const V sixteenth = hn::Set(d, 0.0625);
  const DoubleDouble<V> r = {hn::Mul(x.high, sixteenth), hn::Mul(x.low, sixteenth)};
  // Terms from r^8/8! on are below 2^-53 of r: double does for them.
  V tail = hn::Set(d, 1.0 / 6227020800.0);
  for (const double inverse :
       {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320})
    tail = hn::MulAdd(tail, r.high, hn::Set(d, inverse));
  DoubleDouble<V> sum = {hn::Mul(tail, r.high), hn::Zero(d)};
  // 1/7! .. 1/3!, each as the sum of two doubles.
  static constexpr double kInverse[][2] = {{0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-73},
                                           {0x1.6c16c16c16c17p-10, -0x1.f49f49f49f49fp-65},
                                           {0x1.1111111111111p-7, 0x1.1111111111111p-63},
                                           {0x1.5555555555555p-5, 0x1.5555555555555p-59},
                                           {0x1.5555555555555p-3, 0x1.5555555555555p-57}};
  for (const auto& [high, low] : kInverse) sum = Multiply(d, Add(sum, Constant(d, high, low)), r);
  // sum = r/6 + r^2/24 + ..., so expm1(r) = r + r^2 (1/2 + sum).
  sum = Multiply(d, Multiply(d, Add(sum, Constant(d, 0.5)), r), r);
  sum = Add(sum, r);
  for (int i = 0; i < 4; ++i) {
    const DoubleDouble<V> doubled = {hn::Add(sum.high, sum.high), hn::Add(sum.low, sum.low)};
    sum = Add(doubled, Multiply(d, sum, sum));
  }
  return sum;
}

/// 2^k for integral k in [-1022, 1023].
template <class D, class V>
HWY_INLINE V PowerOfTwo(D d, V k) {
  const hn::RebindToSigned<D> di;
  const auto biased = hn::Add(hn::ConvertTo(di, k), hn::Set(di, 1023));
  return hn::BitCast(d, hn::ShiftLeft<52>(biased));
}

template <class V>
struct Reduced {
  V exponent;
  DoubleDouble<V> rest;
};

/// x = exponent ln 2 + rest.
template <class D, class V>
HWY_INLINE Reduced<V> ReduceExp(D d, DoubleDouble<V> x) {
  const V k = hn::Round(hn::Mul(x.high, hn::Set(d, 0x1.71547652b82fep+0)));
  // ln 2 in three parts, the first with 40 bits: k times it is exact.
  const V first = hn::Mul(k, hn::Set(d, 0x1.62e42fefa2p-1));
  const DoubleDouble<V> second =
      Multiply(d, Constant(d, 0x1.9ef35793c7673p-41, 0x1.f97b57a079a19p-103), k);
  const DoubleDouble<V> rest = Add(x, {hn::Neg(first), hn::Zero(d)});
  return {k, Add(rest, Negate(second))};
}

/// exp(x) for x <= 700; gradual below 2^-1022, 0 below -1000.
template <class D, class V>
HWY_INLINE DoubleDouble<V> Exp(D d, DoubleDouble<V> x) {
  const V lowest = hn::Set(d, -1000.0);
  const auto vanishes = hn::Lt(x.high, lowest);
  x = {hn::IfThenElse(vanishes, lowest, x.high), hn::IfThenZeroElse(vanishes, x.low)};
  const Reduced<V> reduced = ReduceExp(d, x);
  const DoubleDouble<V> y = Add(Constant(d, 1), Expm1Reduced(d, reduced.rest));
  // Two factors, so that neither leaves the exponents of a normal number.
  const V half = hn::Floor(hn::Mul(reduced.exponent, hn::Set(d, 0.5)));
  const V once = PowerOfTwo(d, half), twice = PowerOfTwo(d, hn::Sub(reduced.exponent, half));
  return {hn::IfThenZeroElse(vanishes, hn::Mul(hn::Mul(y.high, once), twice)),
          hn::IfThenZeroElse(vanishes, hn::Mul(hn::Mul(y.low, once), twice))};
}

/// tanh(x) = e / (e + 2) with e = exp(2|x|) - 1; 1 to the last bit of the pair beyond |x| = 40.
template <class D, class V>
HWY_INLINE DoubleDouble<V> Tanh(D d, DoubleDouble<V> x) {
  const V limit = hn::Set(d, 40.0);
  const auto negative = hn::Lt(x.high, hn::Zero(d));
  DoubleDouble<V> doubled = {hn::Add(x.high, x.high), hn::Add(x.low, x.low)};
  doubled = {hn::IfThenElse(negative, hn::Neg(doubled.high), doubled.high),
             hn::IfThenElse(negative, hn::Neg(doubled.low), doubled.low)};
  const auto saturated = hn::Gt(hn::Abs(x.high), limit);
  doubled = {hn::IfThenElse(saturated, hn::Add(limit, limit), doubled.high),
             hn::IfThenZeroElse(saturated, doubled.low)};
  const Reduced<V> reduced = ReduceExp(d, doubled);
  const DoubleDouble<V> small = Expm1Reduced(d, reduced.rest);
  const V power = PowerOfTwo(d, reduced.exponent);
  const DoubleDouble<V> grown = Add(Constant(d, 1), small);
  const DoubleDouble<V> scaled = {hn::Mul(grown.high, power), hn::Mul(grown.low, power)};
  const DoubleDouble<V> large = Add(scaled, Constant(d, -1));
  const auto unscaled = hn::Eq(reduced.exponent, hn::Zero(d));
  const DoubleDouble<V> e = {hn::IfThenElse(unscaled, small.high, large.high),
                             hn::IfThenElse(unscaled, small.low, large.low)};
  const DoubleDouble<V> y = Divide(d, e, Add(e, Constant(d, 2)));
  return {hn::IfThenElse(negative, hn::Neg(y.high), y.high),
          hn::IfThenElse(negative, hn::Neg(y.low), y.low)};
}

/// ln(x) of the first lane, for normal x > 0: one Newton step y + x exp(-y) - 1 from the library's
/// double.
template <class D, class V>
HWY_INLINE DoubleDouble<V> Log(D d, DoubleDouble<V> x) {
  const V guess = hn::Set(d, std::log(hn::GetLane(x.high)));
  const DoubleDouble<V> start = {guess, hn::Zero(d)};
  const DoubleDouble<V> ratio = Multiply(d, x, Exp(d, Negate(start)));
  return Add(start, Add(ratio, Constant(d, -1)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
