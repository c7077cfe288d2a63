// SPDX-License-Identifier: Apache-2.0
#include "reference/row_terms.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/row_terms.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that these are compiled for.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<double>;
using V = hn::Vec<Tag>;

HWY_INLINE V Constant(double x) { return hn::Set(Tag(), x); }
HWY_INLINE V Square(V x) { return hn::Mul(x, x); }
/// a b + c, with a constant.
HWY_INLINE V MulAdd(double a, V b, V c) { return hn::MulAdd(Constant(a), b, c); }
HWY_INLINE double Sum(V x) { return hn::GetLane(hn::SumOfLanes(Tag(), x)); }

// Delta beyond which exp(Delta) is not computed: docs/tolerance.md 3.2.
constexpr double kUnknown = 300;
// Delta from which expm1(Delta) is not Delta.
constexpr double kNotLinear = 0.05;
// Sum of p D from which on the largest weights bound better: (x - o) p D loses what x - o has lost
// to rounding, where a key has all of the weight.
constexpr double kSaysLittle = 1e3;
// Below this a weight is nothing, by whatever a key could gain. exp(-745) is the smallest double.
constexpr double kNoWeight = -700;
/// What Delta and vz add up of one vector of keys, in the order of docs/tolerance.md 3.1 and 3.4.
struct KeyErrors {
  V delta, variance, coherent_square, before_cap;
};

struct RowConstants {
  double u, u2, g_dim, lse_abs, m_abs, rescale, max_updates;
};

/// Everything that the softcap damps: the dot product, the scale, the rotation, the rounding of the
/// inputs and an ALiBi term inside the softcap.
HWY_INLINE KeyErrors ScoreErrors(const Arithmetic& a, const RowConstants& k, const RowScores& row,
                                 std::size_t x) {
  const Tag d;
  const double c2 = a.profile.c_acc * a.profile.c_acc;
  const V s = hn::LoadU(d, row.s.data() + x), s2 = Square(s);
  const V abs_dot = hn::LoadU(d, row.abs_dot.data() + x);
  const V square_dot = hn::LoadU(d, row.square_dot.data() + x);
  KeyErrors e;
  e.delta = MulAdd(k.g_dim, abs_dot, hn::Mul(Constant(3 * k.u), hn::Abs(s)));
  e.variance = MulAdd(a.head_dim / 3, hn::Add(s2, square_dot), MulAdd(2, s2, square_dot));
  e.variance = hn::Mul(Constant(k.u2 * c2), e.variance);
  e.coherent_square = hn::Zero(d);
  if (a.u_rope > 0) {
    const V rope_square = hn::LoadU(d, row.rope_square.data() + x);
    e.delta = MulAdd(kRopeBound * a.u_rope, hn::LoadU(d, row.rope_abs.data() + x), e.delta);
    e.variance = MulAdd(2 * a.u_rope * a.u_rope, rope_square, e.variance);
    e.coherent_square = MulAdd(a.u_rope * a.u_rope, rope_square, e.coherent_square);
  }
  if (a.profile.u_in > 0) {
    const double in2 = a.profile.u_in * a.profile.u_in;
    V rounded = abs_dot, rounded_square = square_dot;
    if (a.u_rope > 0) {  // they may be rounded before they are rotated, and once more afterwards
      rounded = hn::Add(rounded, hn::LoadU(d, row.rope_abs.data() + x));
      rounded_square = hn::Add(rounded_square, hn::LoadU(d, row.rope_square.data() + x));
    }
    e.delta = MulAdd(2 * a.profile.u_in, hn::Add(rounded, hn::Abs(s)), e.delta);
    e.variance = MulAdd(2 * in2, rounded_square, e.variance);
    e.coherent_square = MulAdd(in2, rounded_square, e.coherent_square);
  }
  if (a.alibi_inside) {
    const V alibi = hn::LoadU(d, row.alibi.data() + x), sum = hn::Add(s, alibi);
    e.delta =
        hn::Add(e.delta, MulAdd(3 * k.u, hn::Abs(alibi), hn::Mul(Constant(k.u), hn::Abs(sum))));
    e.variance = MulAdd(k.u2, MulAdd(3, Square(alibi), Square(sum)), e.variance);
  }
  return e;
}

/// What the softcap leaves of errors of the score that add up to `error`.
struct Damped {
  V error;  ///< of the capped score: exact where `error` is reached towards 0, where the cap bends
  V slope;  ///< every error up to `error` keeps at most this share: t, where they are small
};
HWY_INLINE Damped BehindSoftcap(const Arithmetic& a, const RowScores& row, std::size_t x, V error) {
  const Tag d;
  const V one = Constant(1), t = hn::Max(hn::LoadU(d, row.damping.data() + x), Constant(1e-300));
  const V tanh = hn::Mul(Constant(1 / a.softcap), hn::Abs(hn::LoadU(d, row.capped.data() + x)));
  const V capped_error = hn::Mul(Constant(1 / a.softcap), error);
  const V E = hn::Exp(d, hn::Mul(Constant(-2), capped_error));
  // Below 1e-4, 1 - E has lost digits, and tanh x = x to 3e-9.
  const V tanh_error = hn::IfThenElse(hn::Lt(capped_error, Constant(1e-4)), capped_error,
                                      hn::Div(hn::Sub(one, E), hn::Add(one, E)));
  const V lacks = hn::Div(hn::Add(E, E), hn::Add(one, E));  // 1 - tanh_error
  const V below_one = hn::MulAdd(tanh, lacks, hn::Div(t, hn::Add(one, tanh)));
  const V slope = hn::Div(t, below_one);
  return {hn::Mul(Constant(a.softcap), hn::Mul(tanh_error, slope)), slope};
}

/// The roundings of the additions in z = c + alibi + bias: |z| for the last, and with two of them
/// the largest partial sum that some order has.
HWY_INLINE void AddAdditionErrors(const Arithmetic& a, const RowConstants& k, const RowScores& row,
                                  std::size_t x, V z, V capped, KeyErrors& e) {
  const Tag d;
  const bool alibi_added = a.has_alibi && !a.alibi_inside;
  if (a.has_bias || alibi_added) {
    e.delta = MulAdd(k.u, hn::Abs(z), e.delta);
    e.variance = MulAdd(k.u2, Square(z), e.variance);
  }
  if (!alibi_added) return;
  const V alibi = hn::LoadU(d, row.alibi.data() + x);
  e.delta = MulAdd(3 * k.u, hn::Abs(alibi), e.delta);
  e.variance = MulAdd(3 * k.u2, Square(alibi), e.variance);
  if (!a.has_bias) return;
  const V bias = hn::LoadU(d, row.bias.data() + x);
  const V partial = hn::Max(hn::Abs(hn::Add(capped, alibi)),
                            hn::Max(hn::Abs(hn::Add(capped, bias)), hn::Abs(hn::Add(alibi, bias))));
  e.delta = MulAdd(k.u, partial, e.delta);
  e.variance = MulAdd(k.u2, Square(partial), e.variance);
}

/// com and its variance: exp of z - m, and the rescaling of partial sums.
HWY_INLINE void AddWeightErrors(const Arithmetic& a, const RowConstants& k, double m, V z,
                                KeyErrors& e) {
  const double exp2 = a.profile.e_exp * a.profile.e_exp;
  const V below = hn::Abs(hn::Sub(z, Constant(m)));
  // One by one: |z| + |z - m| of the lowest f64 overflows.
  e.delta = MulAdd(2 * k.u, hn::Abs(z), MulAdd(2 * k.u, below, e.delta));
  e.delta = hn::Add(e.delta,
                    Constant(2 * k.u * (k.m_abs + k.lse_abs) + a.profile.e_exp * (1 + k.rescale)));
  const V squares = hn::Add(hn::Add(Square(z), Square(below)),
                            Constant(k.m_abs * k.m_abs + k.lse_abs * k.lse_abs));
  e.variance = hn::Add(MulAdd(2 * k.u2, squares, e.variance), Constant(exp2 * (1 + k.max_updates)));
}

HWY_INLINE KeyErrors ErrorsOfKeys(const Arithmetic& a, const RowConstants& k, const RowScores& row,
                                  std::size_t x) {
  const Tag d;
  const V z = hn::LoadU(d, row.z.data() + x), s = hn::LoadU(d, row.s.data() + x);
  const V capped = hn::LoadU(d, row.capped.data() + x);
  V stored = hn::Abs(s);
  KeyErrors e = ScoreErrors(a, k, row, x);
  e.before_cap = e.delta;
  if (a.softcap > 0) {
    const Damped damped = BehindSoftcap(a, row, x, e.delta);
    const V slope2 = Square(damped.slope);
    e.delta = MulAdd(6 * k.u, hn::Abs(capped), damped.error);
    e.variance = MulAdd(12 * k.u2, Square(capped), hn::Mul(slope2, e.variance));
    e.coherent_square = hn::Mul(slope2, e.coherent_square);
    stored = hn::Mul(damped.slope, stored);
  }
  AddAdditionErrors(a, k, row, x, z, capped, e);
  if (a.profile.u_score > 0) {
    // A kernel stores the score before or after the bias; the softcap damps what it stored before.
    stored = hn::Max(stored, hn::Abs(z));
    e.delta = hn::Add(MulAdd(a.profile.u_score, hn::Add(stored, e.delta), e.delta),
                      Constant(a.profile.eta_score));
    e.variance = hn::Add(MulAdd(a.profile.u_score * a.profile.u_score, Square(stored), e.variance),
                         Constant(a.profile.eta_score * a.profile.eta_score));
  }
  AddWeightErrors(a, k, row.m, z, e);
  e.delta = hn::Min(e.delta, Constant(1e300));  // inf would make 0 * inf of a weight of 0
  e.variance = hn::Min(e.variance, Constant(1e300));
  return e;
}

/// For a row whose scores are so uncertain that p says little: the largest weight that each key can
/// have, relative to the least that the row can sum to. In logarithms, since Delta may be anything.
void BoundByLargestWeights(const RowScores& row, double sink_delta, RowTerms& terms,
                           RowSums& sums) {
  const Tag d;
  V least = Constant(-INFINITY), most = least;
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V z = hn::LoadU(d, row.z.data() + x), delta = hn::LoadU(d, terms.delta.data() + x);
    least = hn::Max(least, hn::Sub(z, delta));
    most = hn::Max(most, hn::Add(z, delta));
  }
  double low = hn::GetLane(hn::MaxOfLanes(d, least)), high = hn::GetLane(hn::MaxOfLanes(d, most));
  if (row.has_sink) {
    low = std::max(low, row.sink - sink_delta);
    high = std::max(high, row.sink + sink_delta);
  }
  V down = hn::Zero(d), up = down;
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V z = hn::LoadU(d, row.z.data() + x), delta = hn::LoadU(d, terms.delta.data() + x);
    down = hn::Add(down, hn::Exp(d, hn::Sub(hn::Sub(z, delta), Constant(low))));
    up = hn::Add(up, hn::Exp(d, hn::Sub(hn::Add(z, delta), Constant(high))));
  }
  double sum_low = Sum(down), sum_high = Sum(up);
  if (row.has_sink) {
    sum_low += std::exp(row.sink - sink_delta - low);
    sum_high += std::exp(row.sink + sink_delta - high);
  }
  low += std::log(sum_low), high += std::log(sum_high);
  sums.is_uncertain = true;
  sums.growth = std::max(high - row.lse, row.lse - low);
  if (row.has_sink) sums.sink_spread = std::exp(std::min(row.sink + sink_delta - low, 0.0));
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V z = hn::LoadU(d, row.z.data() + x), delta = hn::LoadU(d, terms.delta.data() + x);
    const V above = hn::Min(hn::Sub(hn::Add(z, delta), Constant(low)), hn::Zero(d));
    hn::StoreU(hn::Exp(d, above), d, terms.spread.data() + x);
  }
}

RowSums RowTermsImpl(const Arithmetic& a, const RowScores& row, RowTerms& terms) {
  const Tag d;
  RowSums sums;
  sums.n = static_cast<double>(row.n);
  sums.m = row.m, sums.l = row.l, sums.lse = row.lse;
  sums.max_updates = max_updates(row);
  const double rescale = rescale_steps(a, sums.max_updates);
  const RowConstants k{
      a.u,     a.u * a.u,       g(a, a.head_dim), std::fabs(row.lse), std::fabs(row.m),
      rescale, sums.max_updates};
  const double lost_below = a.worst_case ? 0 : 2 * a.u;

  V up = hn::Zero(d), down = up, kept = up, n_l = up, small_l = up, coherent = up, max_p_delta = up;
  V eps_sum = up, eps_square = up, noise_square = up, along_scale = up, along_alibi = up;
  auto unknown = hn::Lt(up, up);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V p = hn::LoadU(d, row.p.data() + x);
    const KeyErrors e = ErrorsOfKeys(a, k, row, x);
    const V most = hn::Add(hn::Sub(hn::LoadU(d, row.z.data() + x), Constant(row.lse)), e.delta);
    unknown = hn::Or(
        unknown, hn::And(hn::Gt(e.delta, Constant(kUnknown)), hn::Gt(most, Constant(kNoWeight))));
    const V grown = hn::Expm1(d, hn::Min(e.delta, Constant(kUnknown))),
            shrunk = hn::Div(p, hn::Add(Constant(1), grown));
    const V spread = hn::Mul(p, grown);
    up = hn::Add(up, spread);
    kept = hn::Add(kept, shrunk);
    down = hn::MulAdd(shrunk, grown, down);
    max_p_delta = hn::Max(max_p_delta, hn::Mul(p, e.delta));
    hn::StoreU(e.delta, d, terms.delta.data() + x);
    hn::StoreU(e.before_cap, d, terms.before_cap.data() + x);
    hn::StoreU(spread, d, terms.spread.data() + x);

    // exp(d) - 1 <= d expm1(Delta) / Delta: a key may gain more than d of what it weighs.
    const V bent =
        hn::IfThenElse(hn::Gt(e.delta, Constant(kNotLinear)), hn::Div(grown, e.delta), Constant(1));
    const V weight = hn::Mul(p, bent);
    const V noise = hn::Mul(weight, hn::Sqrt(e.variance));
    noise_square = hn::MulAdd(noise, noise, noise_square);
    hn::StoreU(noise, d, terms.noise.data() + x);
    coherent = hn::MulAdd(weight, hn::Sqrt(e.coherent_square), coherent);

    V eps = hn::Zero(d);
    if (a.profile.u_p > 0) {
      const double eta = a.profile.eta_p / (a.profile.p_normalised ? 1 : row.l);
      const auto scored = hn::Gt(hn::LoadU(d, row.z.data() + x), Constant(kNoScore / 10));
      eps = hn::IfThenElseZero(scored, hn::Max(hn::Mul(Constant(a.profile.u_p), p), Constant(eta)));
    }
    eps_sum = hn::Add(eps_sum, eps);
    eps_square = hn::MulAdd(eps, eps, eps_square);
    // With dropout the weight is multiplied once more on its way to P.V: one more rounding.
    if (a.has_dropout) eps = MulAdd(a.u, p, eps);
    hn::StoreU(eps, d, terms.eps.data() + x);

    const auto counted = hn::Gt(p, Constant(lost_below));
    n_l = hn::Add(n_l, hn::IfThenElseZero(counted, Constant(1)));
    small_l = hn::Add(small_l, hn::IfThenZeroElse(counted, p));

    V damped = p;
    if (a.softcap > 0) damped = hn::Mul(p, hn::LoadU(d, row.damping.data() + x));
    const V ps = hn::Mul(damped, hn::LoadU(d, row.s.data() + x));
    along_scale = hn::Add(along_scale, ps);
    hn::StoreU(ps, d, terms.along_scale.data() + x);
    if (!a.has_alibi) continue;
    const V pa = hn::Mul(a.alibi_inside ? damped : p, hn::LoadU(d, row.alibi.data() + x));
    along_alibi = hn::Add(along_alibi, pa);
    hn::StoreU(pa, d, terms.along_alibi.data() + x);
  }

  double grown = Sum(up), remaining = Sum(kept), lost = Sum(down);
  sums.n_l = Sum(n_l), sums.small_l = Sum(small_l);
  sums.coherent = Sum(coherent);
  sums.max_p_delta = hn::GetLane(hn::MaxOfLanes(d, max_p_delta));
  sums.eps_sum = Sum(eps_sum), sums.eps_square = Sum(eps_square);
  sums.noise_square = Sum(noise_square);
  sums.along_scale = Sum(along_scale), sums.along_alibi = Sum(along_alibi);
  double sink_delta = 0, sink_grown = 0;
  bool is_uncertain = !hn::AllFalse(d, unknown);
  sums.has_sink = row.has_sink;
  if (row.has_sink) {
    // One more key with v = 0: its score is exact.
    const double sizes = std::fabs(row.sink) + k.m_abs + std::fabs(row.sink - row.m) + k.lse_abs;
    const double common = 2 * a.u * sizes + a.profile.e_exp;
    sink_delta = common + a.profile.e_exp * sums.max_updates;
    is_uncertain |= sink_delta > kUnknown && row.sink - row.lse + sink_delta > kNoWeight;
    const double delta = std::min(sink_delta, kUnknown);
    sink_grown = row.sink_p * std::expm1(delta);
    grown += sink_grown;
    remaining += row.sink_p * std::exp(-delta);
    lost -= row.sink_p * std::expm1(-delta);
    sums.sink_noise = row.sink_p * std::min(common, 1e150);
    sums.noise_square += sums.sink_noise * sums.sink_noise;
    sums.max_p_delta = std::max(sums.max_p_delta, row.sink_p * delta);
    (row.sink_p > lost_below ? sums.n_l : sums.small_l) += row.sink_p > lost_below ? 1 : row.sink_p;
  }
  if (is_uncertain || grown > kSaysLittle * remaining) {
    BoundByLargestWeights(row, sink_delta, terms, sums);
    return sums;
  }
  sums.growth = std::max(std::log1p(grown), lost < 0.5 ? -std::log1p(-lost) : -std::log(remaining));
  sums.sink_spread = sink_grown / remaining;
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V spread = hn::LoadU(d, terms.spread.data() + x);
    hn::StoreU(hn::Mul(spread, Constant(1 / remaining)), d, terms.spread.data() + x);
  }
  return sums;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(RowTermsImpl);

RowSums row_terms(const Arithmetic& arithmetic, const RowScores& row, RowTerms& terms) {
  terms.reserve(row.n);
  return HWY_DYNAMIC_DISPATCH(RowTermsImpl)(arithmetic, row, terms);
}

double max_updates(const RowScores& row) {
  // Blocks are aligned to key rows, so that hidden keys do not move their borders.
  thread_local Buffer<double> maxima;
  double* block_max = maxima.reserve(row.n);
  std::size_t blocks = 0;
  for (std::size_t x = 0; x < row.n;) {
    const std::int32_t block = row.key[x] / 16;
    double largest = row.z[x];
    for (++x; x < row.n && row.key[x] / 16 == block; ++x) largest = std::max(largest, row.z[x]);
    block_max[blocks++] = largest;
  }
  int ascending = 0, descending = 0;
  double running = -INFINITY;
  for (std::size_t b = 0; b < blocks; ++b)
    if (block_max[b] > running) running = block_max[b], ++ascending;
  running = -INFINITY;
  for (std::size_t b = blocks; b-- > 0;)
    if (block_max[b] > running) running = block_max[b], ++descending;
  return std::max(ascending, descending);
}

}  // namespace attest
#endif
