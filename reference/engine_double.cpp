// SPDX-License-Identifier: Apache-2.0
// The fast oracle in double. Products of f32, f16 and bf16 values are exact in it, so that q.k
// carries D roundings of 2^-53 of its partial sums and nothing else.
#include "reference/engine.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/engine_double.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that these are compiled for.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "reference/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<double>;
using V = hn::Vec<Tag>;

void RotateDouble(const RotationTable& table, std::size_t first, RopePairing pairing,
                  ColumnMajor& x) {
  for (std::size_t t = 0; t < table.pairs; ++t) {
    double* a = x.high.data() + first_of_pair(pairing, t) * x.stride;
    double* b = x.high.data() + second_of_pair(pairing, table.pairs, t) * x.stride;
    const double* cos = table.cos.data() + t * table.stride + first;
    const double* sin = table.sin.data() + t * table.stride + first;
    for (std::size_t row = 0; row < x.rows; ++row) {
      const double rotated = a[row] * cos[row] - b[row] * sin[row];
      b[row] = a[row] * sin[row] + b[row] * cos[row];
      a[row] = rotated;
    }
  }
}

void ScoreTileDouble(const ColumnMajor& k, const ColumnMajor& q, std::size_t end_key,
                     bool tolerance, TileScores& tile) {
  const std::size_t count = end_key - tile.first_key;
  DotTile(q.rows, k.channels, k.high.data() + tile.first_key, k.stride, count, q.high.data(),
          tile.dot.data(), tile.stride, Identity());
  AbsoluteTile(k, q, count, tolerance, tile);
}

/// Steps 1 to 3: s, c, t and z; lanes behind the last key get kNoScore.
void FinishScores(const ScoreRules& rules, RowScores& row) {
  const Tag d;
  ScaleMagnitudes(rules, row);
  ScaleInPlace(row.s.data(), row.n, rules.scale);
  if (rules.alibi) ScaleInPlace(row.alibi.data(), row.n, rules.slope);

  V max_score = hn::Zero(d);
  const V cap = hn::Set(d, rules.softcap);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V s = hn::LoadU(d, row.s.data() + x);
    V z = s;
    if (rules.alibi && rules.alibi_inside) z = hn::Add(z, hn::LoadU(d, row.alibi.data() + x));
    if (rules.softcap > 0) {
      const V argument = hn::Div(z, cap);
      hn::StoreU(TanhSlope(argument), d, row.damping.data() + x);
      z = hn::Mul(cap, hn::Tanh(d, argument));
    }
    hn::StoreU(z, d, row.capped.data() + x);
    if (rules.alibi && !rules.alibi_inside) z = hn::Add(z, hn::LoadU(d, row.alibi.data() + x));
    auto ordinary = hn::FirstN(d, row.n - x);
    V bias = hn::Zero(d);
    if (rules.bias) {
      bias = hn::LoadU(d, row.bias.data() + x);
      z = hn::Add(z, bias);
    }
    hn::StoreU(hn::IfThenElse(ordinary, z, hn::Set(d, kNoScore)), d, row.z.data() + x);
    ordinary = hn::And(ordinary, hn::Gt(bias, hn::Set(d, rules.finite_mask)));
    max_score = hn::Max(max_score, hn::IfThenElseZero(ordinary, hn::Max(hn::Abs(z), hn::Abs(s))));
  }
  row.max_score = hn::GetLane(hn::MaxOfLanes(d, max_score));
}

void WeighDouble(const ScoreRules& rules, RowScores& row) {
  const Tag d;
  FinishScores(rules, row);
  row.m = LargestOf(row.z.data(), row.n);
  if (row.has_sink) row.m = std::max(row.m, row.sink);
  V sum = hn::Zero(d);
  for (std::size_t x = 0; x < row.n; x += hn::Lanes(d)) {
    const V weight = hn::Exp(d, hn::Sub(hn::LoadU(d, row.z.data() + x), hn::Set(d, row.m)));
    hn::StoreU(weight, d, row.p.data() + x);
    sum = hn::Add(sum, weight);
  }
  row.sink_p = row.has_sink ? std::exp(row.sink - row.m) : 0;
  row.l = hn::GetLane(hn::SumOfLanes(d, sum)) + row.sink_p;
  row.sink_p /= row.l;
  row.lse = row.m + std::log(row.l);
  row.lse_low = 0;
  ScaleInPlace(row.p.data(), row.n, 1 / row.l);
}

template <int kVectors>
HWY_INLINE void SumBlock(const RowScores& row, const Head& head, std::size_t c, ChannelSums& sums) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  V o[kVectors], abs_sum[kVectors], square_sum[kVectors], error_sum[kVectors];
  for (int k = 0; k < kVectors; ++k) o[k] = abs_sum[k] = square_sum[k] = error_sum[k] = hn::Zero(d);
  for (std::size_t x = 0; x < row.n; ++x) {
    const double* v = head.v_row(row.value[x]) + c;
    const V p = hn::Set(d, row.p[x]), p_error = hn::Set(d, row.p_error[x]);
    for (int k = 0; k < kVectors; ++k) {
      const V value = hn::LoadU(d, v + static_cast<std::size_t>(k) * lanes);
      const V weighted = hn::Mul(p, value), abs_value = hn::Abs(value);
      o[k] = hn::MulAdd(p, value, o[k]);
      abs_sum[k] = hn::MulAdd(p, abs_value, abs_sum[k]);
      error_sum[k] = hn::MulAdd(p_error, abs_value, error_sum[k]);
      square_sum[k] = hn::MulAdd(weighted, weighted, square_sum[k]);
    }
  }
  for (int k = 0; k < kVectors; ++k) {
    const std::size_t at = c + static_cast<std::size_t>(k) * lanes;
    hn::StoreU(o[k], d, sums.o.data() + at);
    hn::StoreU(abs_sum[k], d, sums.abs_sum.data() + at);
    hn::StoreU(square_sum[k], d, sums.square_sum.data() + at);
    hn::StoreU(error_sum[k], d, sums.error_sum.data() + at);
  }
}

void SumValuesDouble(const RowScores& row, const Head& head, ChannelSums& sums) {
  const std::size_t lanes = hn::Lanes(Tag());
  std::size_t c = 0;
  for (; c + 3 * lanes < head.v_channels; c += 4 * lanes) SumBlock<4>(row, head, c, sums);
  for (; c < head.v_channels; c += lanes) SumBlock<1>(row, head, c, sums);
}

}  // namespace

Engine MakeDoubleEngine() {
  Engine engine;
  engine.target = hwy::TargetName(HWY_TARGET);
  engine.unit = 0x1p-53;
  engine.exp_units = 8;   // documented: 1 ulp
  engine.tanh_units = 8;  // documented: 4 ulp
  engine.log_units = 4;
  engine.tiny = 0x1p-1000;
  engine.lanes = hn::Lanes(Tag());
  engine.rotate = &RotateDouble;
  engine.score_tile = &ScoreTileDouble;
  engine.weigh = &WeighDouble;
  engine.sum_values = &SumValuesDouble;
  return engine;
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(MakeDoubleEngine);

Engine double_engine() { return HWY_DYNAMIC_DISPATCH(MakeDoubleEngine)(); }

}  // namespace attest
#endif
