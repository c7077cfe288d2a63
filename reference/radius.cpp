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

/// What is left behind the softcap of the error `error` of its argument:
/// |tanh(x + e) - tanh(x)| <= exp(2e) (1 - tanh^2 x) e, where both t and its rounding count, and at
/// most 1 - tanh(|x| - e) <= 2 exp(-2(|x| - e)), which needs no small e.
HWY_INLINE V BehindSoftcap(const Engine& engine, const ScoreRules& rules, const RowScores& row,
                           std::size_t x, V error) {
  const Tag d;
  V argument = hn::LoadU(d, row.s.data() + x);
  if (rules.alibi_inside) argument = hn::Add(argument, hn::LoadU(d, row.alibi.data() + x));
  const V least = hn::Max(hn::Sub(hn::Abs(argument), error), hn::Zero(d));
  const V beyond = hn::Mul(hn::Set(d, 2 * rules.softcap),
                           hn::Exp(d, hn::Mul(hn::Set(d, -2 / rules.softcap), least)));
  const V damping = hn::Add(hn::LoadU(d, row.damping.data() + x), hn::Set(d, 0x1p-49));
  const auto small = hn::Lt(error, hn::Set(d, rules.softcap / 4));
  const V damped = hn::Mul(error, hn::Mul(damping, hn::Set(d, 1.65)));
  error = hn::Min(hn::Min(error, beyond), hn::IfThenElse(small, damped, error));
  const double tanh_units = 2 * engine.unit * (engine.tanh_units + 4);
  return hn::Add(error, Scaled(tanh_units, row.capped, x));
}

/// Twice the bound on the absolute error of z_j - m plus the relative one of exp, of one vector of
/// keys. Each term is made small before it is added, since a finite mask value may be the largest
/// double.
HWY_INLINE V WeightError(const Engine& engine, const ScoreRules& rules, double dot_units,
                         const RowScores& row, std::size_t x) {
  const Tag d;
  const double unit = 2 * engine.unit;
  V error = Scaled(unit * dot_units, row.abs_dot, x);
  if (rules.rope) error = hn::Add(error, Scaled(unit * 10, row.rope_abs, x));
  if (rules.softcap > 0) {
    error = hn::Add(error, Scaled(unit, row.s, x));
    if (rules.alibi_inside) error = hn::Add(error, Scaled(unit * 3, row.alibi, x));
    error = BehindSoftcap(engine, rules, row, x, error);
  }
  const V z = hn::LoadU(d, row.z.data() + x);
  if (rules.alibi) {
    error = hn::Add(error, Scaled(unit * 3, row.alibi, x));
    error = hn::Add(error, Scaled(unit * 2, row.capped, x));
  }
  if (rules.bias) {
    error = hn::Add(error, Scaled(unit * 2, row.bias, x));
    error = hn::Add(error, hn::Mul(hn::Set(d, unit), hn::Abs(z)));
  }
  const V below = hn::Abs(hn::Sub(z, hn::Set(d, row.m)));
  return hn::Add(error, hn::Mul(hn::Set(d, unit), hn::Add(below, hn::Set(d, engine.exp_units))));
}

/// The number of the largest score; n where it is the sink.
HWY_INLINE std::size_t TopKey(const RowScores& row) {
  std::size_t x = 0;
  while (x < row.n && row.z[x] != row.m) ++x;
  return x;
}

RowError RowErrorImpl(const Engine& engine, const ScoreRules& rules, double head_dim,
                      RowScores& row) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const double n = static_cast<double>(row.n);
  const double dot_units =
      engine.compensated ? head_dim * head_dim / 4 + head_dim + 16 : head_dim + 4;
  const std::size_t top = TopKey(row);
  HWY_ALIGN double errors[kMaxLanes] = {};
  if (top < row.n) hn::StoreU(WeightError(engine, rules, dot_units, row, top), d, errors);
  const double top_error = errors[0];

  const V inverse = hn::Set(d, 1 / row.l);
  V total = hn::Zero(d);
  for (std::size_t x = 0; x < row.n; x += lanes) {
    const V e = hn::Add(WeightError(engine, rules, dot_units, row, x), hn::Set(d, top_error));
    const V p = hn::LoadU(d, row.p.data() + x);
    const V below = hn::Sub(hn::LoadU(d, row.z.data() + x), hn::Set(d, row.m));
    // exp(e) - 1 < 1.14 e for e < 0.25. Beyond, the weight may be anything up to exp(z - m + e).
    const V known = hn::Mul(p, hn::Mul(hn::Set(d, 1.14), e));
    const V largest = hn::Exp(d, hn::Min(hn::Add(below, e), hn::Set(d, 700.0)));
    V bound = hn::IfThenElse(hn::Lt(e, hn::Set(d, 0.25)), known, hn::Mul(largest, inverse));
    bound = hn::Add(bound, hn::Set(d, engine.tiny));
    // Errors are taken relative to the largest weight, so that one has none of its own.
    const auto number = hn::Iota(d, static_cast<double>(x));
    const auto other =
        hn::And(hn::FirstN(d, row.n - x), hn::Ne(number, hn::Set(d, static_cast<double>(top))));
    bound = hn::IfThenElseZero(other, bound);
    hn::StoreU(bound, d, row.p_error.data() + x);
    total = hn::Add(total, bound);
  }
  // |l^ - l| / l: what the others' errors add up to moves every weight.
  double shift = hn::GetLane(hn::SumOfLanes(d, total));
  if (row.has_sink && top < row.n) shift += row.sink_p * std::expm1(std::min(top_error, 700.0));
  for (std::size_t x = 0; x < row.n; x += lanes) {
    const V p = hn::LoadU(d, row.p.data() + x);
    const V bound = hn::MulAdd(p, hn::Set(d, shift), hn::LoadU(d, row.p_error.data() + x));
    hn::StoreU(hn::Min(bound, hn::Set(d, 1.0)), d, row.p_error.data() + x);
  }
  RowError error;
  error.sum_units = engine.compensated ? n * n / 4 + n + 16 : n + 8;
  error.lse = top_error + shift +
              2 * engine.unit *
                  (error.sum_units + engine.log_units * std::fabs(std::log(row.l)) +
                   2 * std::fabs(row.lse));
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
                double max_abs_v, std::size_t c, double unit, bool ends) {
  const double o = std::fabs(sums.o[c]), abs_sum = sums.abs_sum[c];
  // o and the computed o both lie between the smallest and the largest x.
  const double moved = std::min(1.01 * sums.error_sum[c], 2 * max_abs_v);
  const double steps = 2 * engine.unit * (error.sum_units * (abs_sum + o) + 8 * o);
  const bool subnormal = 0 < abs_sum && abs_sum < 0x1p-900;
  const double underflow = subnormal ? error.sum_units * 0x1p-1073 : 0;
  return unit * (moved + steps + underflow) + (ends ? 0x1p-1074 : 0);
}

}  // namespace attest
#endif
