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
// Below this a weight is nothing, by whatever a key could gain. exp(-745) is the smallest double.
constexpr double kNoWeight = -700;
// Stands in `spread`, before it is divided, for a share of 1 of the row.
constexpr double kCarriesAll = -1;

/// What Delta and vz add up of one vector of keys, in the order of docs/tolerance.md 3.1 and 3.4.
struct KeyErrors {
  V delta, variance, coherent_square;
  V unknown;  ///< Delta where it is beyond kUnknown and the key may carry the row, else 0
};

struct RowConstants {
  double u, u2, g_dim, lse_abs, m_abs, rescale, max_updates;
};

/// Everything that t damps: the dot product, the scale, the rotation, the rounding of the inputs
/// and an ALiBi term inside the softcap.
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
    e.delta = MulAdd(2 * a.profile.u_in, hn::Add(abs_dot, hn::Abs(s)), e.delta);
    e.variance = MulAdd(2 * in2, square_dot, e.variance);
    e.coherent_square = MulAdd(in2, square_dot, e.coherent_square);
  }
  if (a.alibi_inside) {
    const V alibi = hn::LoadU(d, row.alibi.data() + x), sum = hn::Add(s, alibi);
    e.delta =
        hn::Add(e.delta, MulAdd(3 * k.u, hn::Abs(alibi), hn::Mul(Constant(k.u), hn::Abs(sum))));
    e.variance = MulAdd(k.u2, MulAdd(3, Square(alibi), Square(sum)), e.variance);
  }
  return e;
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
  if (a.has_softcap) {
    const V t = hn::LoadU(d, row.damping.data() + x), t2 = Square(t);
    e.delta = MulAdd(6 * k.u, hn::Abs(capped), hn::Mul(t, e.delta));
    e.variance = MulAdd(12 * k.u2, Square(capped), hn::Mul(t2, e.variance));
    e.coherent_square = hn::Mul(t2, e.coherent_square);
    stored = hn::Mul(t, stored);
  }
  AddAdditionErrors(a, k, row, x, z, capped, e);
  if (a.profile.u_score > 0) {
    // A kernel stores the score before or after the bias; the softcap damps what it stored before.
    stored = hn::Max(stored, hn::Abs(z));
    e.delta = hn::Add(MulAdd(a.profile.u_score, stored, e.delta), Constant(a.profile.eta_score));
    e.variance = hn::Add(MulAdd(a.profile.u_score * a.profile.u_score, Square(stored), e.variance),
                         Constant(a.profile.eta_score * a.profile.eta_score));
  }
  AddWeightErrors(a, k, row.m, z, e);
  const V most = hn::Add(hn::Sub(z, Constant(row.lse)), e.delta);  // log of what p can grow to
  e.unknown = hn::IfThenElseZero(
      hn::And(hn::Gt(e.delta, Constant(kUnknown)), hn::Gt(most, Constant(kNoWeight))), e.delta);
  // inf would make 0 * inf of a weight of 0.
  e.delta = hn::Min(e.delta, Constant(kUnknown));
  e.variance = hn::Min(e.variance, Constant(1e300));
  return e;
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
  V unknown = up;
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V p = hn::LoadU(d, row.p.data() + x);
    const KeyErrors e = ErrorsOfKeys(a, k, row, x);
    unknown = hn::Max(unknown, e.unknown);
    const V grown = hn::Expm1(d, e.delta), shrunk = hn::Div(p, hn::Add(Constant(1), grown));
    const V spread = hn::Mul(p, grown);
    up = hn::Add(up, spread);
    kept = hn::Add(kept, shrunk);
    down = hn::MulAdd(shrunk, grown, down);
    max_p_delta = hn::Max(max_p_delta, hn::Mul(p, e.delta));
    hn::StoreU(e.delta, d, terms.delta.data() + x);
    const auto is_known = hn::Eq(e.unknown, hn::Zero(d));
    hn::StoreU(hn::IfThenElse(is_known, spread, Constant(kCarriesAll)), d, terms.spread.data() + x);

    const V noise = hn::Mul(p, hn::Sqrt(e.variance));
    noise_square = hn::MulAdd(noise, noise, noise_square);
    hn::StoreU(noise, d, terms.noise.data() + x);
    coherent = hn::MulAdd(p, hn::Sqrt(e.coherent_square), coherent);

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
    if (a.has_softcap) damped = hn::Mul(p, hn::LoadU(d, row.damping.data() + x));
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
  sums.unknown = hn::GetLane(hn::MaxOfLanes(d, unknown));
  sums.eps_sum = Sum(eps_sum), sums.eps_square = Sum(eps_square);
  sums.noise_square = Sum(noise_square);
  sums.along_scale = Sum(along_scale), sums.along_alibi = Sum(along_alibi);
  double sink_grown = 0;
  bool sink_is_unknown = false;
  sums.has_sink = row.has_sink;
  if (row.has_sink) {
    // One more key with v = 0: its score is exact.
    const double sizes = std::fabs(row.sink) + k.m_abs + std::fabs(row.sink - row.m) + k.lse_abs;
    const double common = 2 * a.u * sizes + a.profile.e_exp;
    const double whole = common + a.profile.e_exp * sums.max_updates;
    const double delta = std::min(whole, kUnknown);
    sink_is_unknown = whole > kUnknown && row.sink - row.lse + whole > kNoWeight;
    if (sink_is_unknown) sums.unknown = std::max(sums.unknown, whole);
    sink_grown = row.sink_p * std::expm1(delta);
    grown += sink_grown;
    remaining += row.sink_p * std::exp(-delta);
    lost -= row.sink_p * std::expm1(-delta);
    sums.sink_noise = row.sink_p * std::min(common, 1e150);
    sums.noise_square += sums.sink_noise * sums.sink_noise;
    sums.max_p_delta = std::max(sums.max_p_delta, row.sink_p * delta);
    (row.sink_p > lost_below ? sums.n_l : sums.small_l) += row.sink_p > lost_below ? 1 : row.sink_p;
  }
  sums.growth = std::max(std::log1p(grown), lost < 0.5 ? -std::log1p(-lost) : -std::log(remaining));
  sums.growth = std::max(sums.growth, sums.unknown);
  sums.sink_spread = sink_is_unknown ? 1 : sink_grown / remaining;
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V spread = hn::LoadU(d, terms.spread.data() + x);
    const V share = hn::Mul(spread, Constant(1 / remaining));
    const auto carries_all = hn::Eq(spread, Constant(kCarriesAll));
    hn::StoreU(hn::IfThenElse(carries_all, Constant(1), share), d, terms.spread.data() + x);
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
