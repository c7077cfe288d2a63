// SPDX-License-Identifier: Apache-2.0
#include "reference/radius.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/radius.cpp"
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

HWY_INLINE V Scaled(double factor, const Buffer<double>& values, std::size_t x) {
  const Tag d;
  return hn::Mul(hn::Set(d, factor), hn::Abs(hn::LoadU(d, values.data() + x)));
}

/// Twice the bound on the absolute error of z_j - m plus the relative one of exp, of one vector of
/// keys. No damping by the softcap: what it does to an error of finite size is at most nothing.
/// Each term is made small before it is added, since a finite mask value may be the largest double.
HWY_INLINE V WeightError(const Engine& engine, const ScoreRules& rules, double dot_units,
                         const RowScores& row, std::size_t x) {
  const Tag d;
  const double unit = 2 * engine.unit;
  const V z = hn::LoadU(d, row.z.data() + x);
  const V below = hn::Sub(z, hn::Set(d, row.m));
  V error = hn::Set(d, unit * engine.exp_units);
  error = hn::Add(error, hn::Mul(hn::Set(d, unit), hn::Abs(below)));
  error = hn::Add(error, Scaled(unit * dot_units, row.abs_dot, x));
  if (rules.rope) error = hn::Add(error, Scaled(unit * 10, row.rope_abs, x));
  if (rules.softcap > 0) {
    error = hn::Add(error, Scaled(unit, row.s, x));
    error = hn::Add(error, Scaled(unit * (engine.tanh_units + 4), row.capped, x));
  }
  if (rules.alibi) {
    error = hn::Add(error, Scaled(unit * 3, row.alibi, x));
    error = hn::Add(error, Scaled(unit * 2, row.capped, x));
  }
  if (rules.bias) {
    error = hn::Add(error, Scaled(unit * 2, row.bias, x));
    error = hn::Add(error, hn::Mul(hn::Set(d, unit), hn::Abs(z)));
  }
  return error;
}

/// Weights that keep their order at best: every one but the largest lies between exp(z - m - e) and
/// exp(z - m + e), with e the errors of both scores, and l is at least 1.
HWY_INLINE void BoundHopeless(const Engine& engine, const ScoreRules& rules, double dot_units,
                              RowScores& row, RowError& error) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN double errors[kMaxLanes];
  std::size_t top = row.n;
  for (std::size_t x = 0; x < row.n && top == row.n; ++x)
    if (row.z[x] == row.m) top = x;
  double top_error = 0;
  if (top < row.n) {
    hn::StoreU(WeightError(engine, rules, dot_units, row, top), d, errors);
    top_error = errors[0];
  }
  double shift = row.has_sink && top < row.n ? row.sink_p * row.l * std::expm1(top_error) : 0;
  for (std::size_t x = 0; x < row.n; x += lanes) {
    hn::StoreU(WeightError(engine, rules, dot_units, row, x), d, errors);
    for (std::size_t lane = 0; lane < lanes && x + lane < row.n; ++lane) {
      if (x + lane == top) continue;
      const double e = errors[lane] + top_error;
      const double largest = std::exp(std::min(row.z[x + lane] - row.m + e, 700.0));
      row.p_error[x + lane] = largest * -std::expm1(-2 * e);
      shift += row.p_error[x + lane];
    }
  }
  for (std::size_t x = 0; x < row.n; ++x)
    row.p_error[x] = std::min(1.0, (x == top ? 0 : row.p_error[x]) + row.p[x] * shift);
  error.l = 0;
  error.lse = top_error + shift;
}

RowError RowErrorImpl(const Engine& engine, const ScoreRules& rules, double head_dim,
                      RowScores& row) {
  const Tag d;
  const double n = static_cast<double>(row.n);
  const double dot_units =
      engine.compensated ? head_dim * head_dim / 4 + head_dim + 16 : head_dim + 4;
  RowError error;
  error.sum_units = engine.compensated ? n * n / 4 + n + 16 : n + 8;
  V total = hn::Zero(d);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V e = WeightError(engine, rules, dot_units, row, x);
    const V p = hn::LoadU(d, row.p.data() + x);
    const V below = hn::Sub(hn::LoadU(d, row.z.data() + x), hn::Set(d, row.m));
    // 0.25 > e: exp(e) - 1 < 1.14 e. Beyond, the weight may be anything up to exp(z - m + e).
    const V known = hn::Mul(p, hn::Mul(hn::Set(d, 1.14), e));
    V bound = hn::IfThenElse(hn::Lt(e, hn::Set(d, 0.25)), known,
                             hn::Add(p, hn::Exp(d, hn::Min(hn::Add(below, e), hn::Zero(d)))));
    bound = hn::IfThenElseZero(hn::FirstN(d, row.n - x), hn::Add(bound, hn::Set(d, engine.tiny)));
    hn::StoreU(bound, d, row.p_error.data() + x);
    total = hn::Add(total, bound);
  }
  const double weights = hn::GetLane(hn::SumOfLanes(d, total));
  error.l = weights + 2 * engine.unit * error.sum_units;
  error.lse = error.l;
  error.hopeless = !(weights < 0x1p-10);
  if (error.hopeless) BoundHopeless(engine, rules, dot_units, row, error);
  error.lse +=
      2 * engine.unit * (engine.log_units * std::fabs(std::log(row.l)) + 2 * std::fabs(row.lse));
  return error;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(RowErrorImpl);

RowError row_error(const Engine& engine, const ScoreRules& rules, double head_dim, RowScores& row) {
  return HWY_DYNAMIC_DISPATCH(RowErrorImpl)(engine, rules, head_dim, row);
}

double radius_o(const Engine& engine, const RowError& error, const ChannelSums& sums,
                double max_abs_v, std::size_t c, double factor) {
  const double o = std::fabs(sums.o[c]), abs_sum = sums.abs_sum[c];
  const double weights = 1.01 * sums.error_sum[c] + error.l * o;
  // o and the computed o both lie between the smallest and the largest x.
  const double moved = error.hopeless ? std::min(weights, 2 * max_abs_v) : weights;
  const double steps = 2 * engine.unit * (error.sum_units * abs_sum + 8 * o);
  // Below the smallest normal number the pair (value, low) ends.
  const bool underflows = engine.compensated && abs_sum > 0 && factor * abs_sum < 0x1p-960;
  return factor * (moved + steps) + (underflows ? 0x1p-1074 : 0);
}

}  // namespace attest
#endif
