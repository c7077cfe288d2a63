// SPDX-License-Identifier: Apache-2.0
// The fast oracle in double-double, for f64 problems: what a kernel rounds to 2^-53 is known here
// to about 2^-95. The tolerance's own sums need no more than double and come from its high parts.
#include "reference/engine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/engine_double_double.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that these are compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "reference/dot_tile-inl.h"
#include "reference/double_double-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::ScalableTag<double>;
using V = hn::Vec<Tag>;
using Pair = DoubleDouble<V>;

HWY_INLINE Pair LoadPair(const double* high, const double* low) {
  const Tag d;
  return {hn::LoadU(d, high), hn::LoadU(d, low)};
}
HWY_INLINE void StorePair(Pair x, double* high, double* low) {
  const Tag d;
  hn::StoreU(x.high, d, high);
  hn::StoreU(x.low, d, low);
}

/// Adds a product of full pairs to a sum whose low part collects every error and is added at the
/// end (Ogita, Rump and Oishi 2005, Dot2): n terms lose n^2 2^-106 of the sum of magnitudes.
HWY_INLINE void AddProduct(V a, V a_low, V b, V b_low, Pair& sum) {
  const Tag d;
  const Pair product = TwoProduct(d, a, b);
  const Pair total = TwoSum(sum.high, product.high);
  const V cross = hn::MulAdd(a, b_low, hn::MulAdd(a_low, b, product.low));
  sum = {total.high, hn::Add(sum.low, hn::Add(total.low, cross))};
}

void RotatePairs(const RotationTable& table, std::size_t first, RopePairing pairing,
                 ColumnMajor& x) {
  const Tag d;
  for (std::size_t t = 0; t < table.pairs; ++t) {
    const std::size_t a = first_of_pair(pairing, t) * x.stride;
    const std::size_t b = second_of_pair(pairing, table.pairs, t) * x.stride;
    const std::size_t angle = t * table.stride + first;
    for (std::size_t row = 0; row < x.rows; row += hn::Lanes(d)) {
      const auto rows = hn::FirstN(d, x.rows - row);
      const V va = hn::LoadU(d, x.high.data() + a + row),
              vb = hn::LoadU(d, x.high.data() + b + row);
      const Pair cos = LoadPair(table.cos.data() + angle + row, table.cos_low.data() + angle + row);
      const Pair sin = LoadPair(table.sin.data() + angle + row, table.sin_low.data() + angle + row);
      const Pair ra = Add(Multiply(d, cos, va), Negate(Multiply(d, sin, vb)));
      const Pair rb = Add(Multiply(d, sin, va), Multiply(d, cos, vb));
      hn::BlendedStore(ra.high, rows, d, x.high.data() + a + row);
      hn::BlendedStore(ra.low, rows, d, x.low.data() + a + row);
      hn::BlendedStore(rb.high, rows, d, x.high.data() + b + row);
      hn::BlendedStore(rb.low, rows, d, x.low.data() + b + row);
    }
  }
}

template <bool kLow>
HWY_INLINE void DotPairs(const ColumnMajor& k, const ColumnMajor& q, std::size_t row,
                         std::size_t count, TileScores& tile) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t j = 0; j < count; j += 2 * lanes) {
    Pair sum[2] = {Constant(d, 0), Constant(d, 0)};
    for (std::size_t c = 0; c < k.channels; ++c) {
      const V query = hn::Set(d, q.high[c * q.stride + row]);
      const V query_low = kLow ? hn::Set(d, q.low[c * q.stride + row]) : hn::Zero(d);
      for (std::size_t x = 0; x < 2; ++x) {
        const std::size_t at = c * k.stride + tile.first_key + j + x * lanes;
        const V key = hn::LoadU(d, k.high.data() + at);
        if (kLow) {
          AddProduct(query, query_low, key, hn::LoadU(d, k.low.data() + at), sum[x]);
          continue;
        }
        const Pair product = TwoProduct(d, query, key);
        const Pair total = TwoSum(sum[x].high, product.high);
        sum[x] = {total.high, hn::Add(sum[x].low, hn::Add(total.low, product.low))};
      }
    }
    for (std::size_t x = 0; x < 2; ++x) {
      const std::size_t at = row * tile.stride + j + x * lanes;
      StorePair(FastTwoSum(sum[x].high, sum[x].low), tile.dot.data() + at,
                tile.dot_low.data() + at);
    }
  }
}

void ScoreTilePairs(const ColumnMajor& k, const ColumnMajor& q, std::size_t end_key, bool tolerance,
                    TileScores& tile) {
  const std::size_t count = end_key - tile.first_key;
  for (std::size_t row = 0; row < q.rows; ++row)
    k.pairs > 0 ? DotPairs<true>(k, q, row, count, tile) : DotPairs<false>(k, q, row, count, tile);
  AbsoluteTile(k, q, count, tolerance, tile);
}

/// 1 - tanh^2 x, as TanhSlope() of doubles.
HWY_INLINE Pair TanhSlope(Pair x) {
  const Tag d;
  const auto negative = hn::Lt(x.high, hn::Zero(d));
  const Pair abs{hn::IfThenElse(negative, hn::Neg(x.high), x.high),
                 hn::IfThenElse(negative, hn::Neg(x.low), x.low)};
  const Pair E = Exp(d, Multiply(d, abs, hn::Set(d, -2.0)));
  const Pair sum = Add(E, Constant(d, 1));
  return Divide(d, Multiply(d, E, hn::Set(d, 4.0)), Multiply(d, sum, sum));
}

/// Steps 1 to 3 in pairs; z_low stands in row.s_low afterwards.
void FinishScores(const ScoreRules& rules, RowScores& row) {
  const Tag d;
  V max_score = hn::Zero(d), max_z = hn::Set(d, kNoScore);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const Pair dot = LoadPair(row.s.data() + x, row.s_low.data() + x);
    const Pair s = Multiply(d, dot, Constant(d, rules.scale, rules.scale_low));
    hn::StoreU(s.high, d, row.s.data() + x);
    Pair z = s;
    Pair alibi = Constant(d, 0);
    if (rules.alibi) {
      alibi = TwoProduct(d, hn::LoadU(d, row.alibi.data() + x), hn::Set(d, rules.slope));
      hn::StoreU(alibi.high, d, row.alibi.data() + x);
      if (rules.alibi_inside) z = Add(z, alibi);
    }
    if (rules.softcap > 0) {
      const Pair argument = Divide(d, z, Constant(d, rules.softcap));
      const Pair tanh = Tanh(d, argument);
      StorePair(TanhSlope(argument), row.damping.data() + x, row.damping_low.data() + x);
      z = Multiply(d, tanh, hn::Set(d, rules.softcap));
    }
    hn::StoreU(z.high, d, row.capped.data() + x);
    if (rules.alibi && !rules.alibi_inside) z = Add(z, alibi);
    auto ordinary = hn::FirstN(d, row.n - x);
    V bias = hn::Zero(d);
    if (rules.bias) {
      bias = hn::LoadU(d, row.bias.data() + x);
      z = Add(z, {bias, hn::Zero(d)});
    }
    z = {hn::IfThenElse(ordinary, z.high, hn::Set(d, kNoScore)),
         hn::IfThenElseZero(ordinary, z.low)};
    StorePair(z, row.z.data() + x, row.s_low.data() + x);
    max_z = hn::Max(max_z, z.high);
    ordinary = hn::And(ordinary, hn::Gt(bias, hn::Set(d, rules.finite_mask)));
    max_score =
        hn::Max(max_score, hn::IfThenElseZero(ordinary, hn::Max(hn::Abs(z.high), hn::Abs(s.high))));
  }
  row.max_score = hn::GetLane(hn::MaxOfLanes(d, max_score));
  row.m = hn::GetLane(hn::MaxOfLanes(d, max_z));
}

/// The sum of the lanes, in every lane.
HWY_INLINE Pair SumOfPairs(Pair x) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN double high[kMaxLanes], low[kMaxLanes];
  StorePair(x, high, low);
  Pair sum = Constant(d, high[0], low[0]);
  for (std::size_t lane = 1; lane < lanes; ++lane)
    sum = Add(sum, Constant(d, high[lane], low[lane]));
  return sum;
}

void WeighPairs(const ScoreRules& rules, RowScores& row) {
  const Tag d;
  ScaleMagnitudes(rules, row);
  FinishScores(rules, row);
  if (row.has_sink) row.m = std::max(row.m, row.sink);
  const V m = hn::Set(d, row.m);
  Pair sum = Constant(d, 0);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const Pair z = LoadPair(row.z.data() + x, row.s_low.data() + x);
    const Pair weight = Exp(d, Add(z, {hn::Neg(m), hn::Zero(d)}));
    StorePair(weight, row.weight_high.data() + x, row.weight_low.data() + x);
    sum = Add(sum, weight);
  }
  sum = SumOfPairs(sum);
  row.sink_p = 0;
  if (row.has_sink) {
    const Pair weight = Exp(d, TwoSum(hn::Set(d, row.sink), hn::Neg(m)));
    sum = Add(sum, weight);
    row.sink_p = hn::GetLane(weight.high) / hn::GetLane(sum.high);
  }
  row.l = hn::GetLane(sum.high);
  row.l_low = hn::GetLane(sum.low);
  const Pair lse = Add(Log(d, sum), {m, hn::Zero(d)});
  row.lse = hn::GetLane(lse.high);
  row.lse_low = hn::GetLane(lse.low);
  const V inverse = hn::Set(d, 1 / row.l);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d))
    hn::StoreU(hn::Mul(hn::LoadU(d, row.weight_high.data() + x), inverse), d, row.p.data() + x);
}

void SumValuesPairs(const RowScores& row, const Head& head, ChannelSums& sums) {
  const Tag d;
  const Pair l = Constant(d, row.l, row.l_low);
  for (std::size_t c = 0; c < head.v_channels; c += hn::Lanes(d)) {
    Pair o = Constant(d, 0);
    V abs_sum = hn::Zero(d), square_sum = abs_sum, error_sum = abs_sum;
    for (std::size_t x = 0; x < row.n; ++x) {
      const V value = hn::LoadU(d, head.v_row(row.value[x]) + c);
      AddProduct(hn::Set(d, row.weight_high[x]), hn::Set(d, row.weight_low[x]), value, hn::Zero(d),
                 o);
      const V weighted = hn::Mul(hn::Set(d, row.p[x]), value);
      abs_sum = hn::Add(abs_sum, hn::Abs(weighted));
      square_sum = hn::MulAdd(weighted, weighted, square_sum);
      error_sum = hn::MulAdd(hn::Set(d, row.p_error[x]), hn::Abs(value), error_sum);
    }
    StorePair(Divide(d, FastTwoSum(o.high, o.low), l), sums.o.data() + c, sums.o_low.data() + c);
    hn::StoreU(abs_sum, d, sums.abs_sum.data() + c);
    hn::StoreU(square_sum, d, sums.square_sum.data() + c);
    hn::StoreU(error_sum, d, sums.error_sum.data() + c);
  }
}

}  // namespace

Engine MakeDoubleDoubleEngine() {
  Engine engine;
  engine.target = hwy::TargetName(HWY_TARGET);
  engine.unit = 0x1p-102;
  engine.exp_units = 64;
  engine.tanh_units = 64;
  engine.log_units = 16;
  engine.lanes = hn::Lanes(Tag());
  engine.compensated = true;
  engine.tiny = 0x1p-1070;
  engine.rotate = &RotatePairs;
  engine.score_tile = &ScoreTilePairs;
  engine.weigh = &WeighPairs;
  engine.sum_values = &SumValuesPairs;
  return engine;
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(MakeDoubleDoubleEngine);

Engine double_double_engine() { return HWY_DYNAMIC_DISPATCH(MakeDoubleDoubleEngine)(); }

}  // namespace attest
#endif
