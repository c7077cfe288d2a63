// SPDX-License-Identifier: Apache-2.0
// Sums over channels of products of queries and keys, keys across lanes: q.k, sum |q k| and
// sum (q k)^2 alike. Included once per SIMD target.
#if defined(ATTEST_REFERENCE_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_DOT_TILE_INL_H_
#undef ATTEST_REFERENCE_DOT_TILE_INL_H_
#else
#define ATTEST_REFERENCE_DOT_TILE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstddef>

#include "reference/engine.hpp"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

struct Identity {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
struct Absolute {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hwy::HWY_NAMESPACE::Abs(x);
  }
};
struct Square {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hwy::HWY_NAMESPACE::Mul(x, x);
  }
};

/// out[r * out_stride + j] = sum_c query[c * kTileRows + r] f(key[c * key_stride + j]) for kRows
/// rows and kVectors vectors of keys: eight chains of additions hide their latency.
template <int kRows, int kVectors, class F>
HWY_INLINE void DotBlock(std::size_t channels, const double* key, std::size_t key_stride,
                         const double* query, double* out, std::size_t out_stride, F f) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<hn::ScalableTag<double>> sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int x = 0; x < kVectors; ++x) sum[r][x] = hn::Zero(d);
  for (std::size_t c = 0; c < channels; ++c, key += key_stride, query += kTileRows)
    for (int x = 0; x < kVectors; ++x) {
      const auto k = f(hn::LoadU(d, key + static_cast<std::size_t>(x) * lanes));
      for (int r = 0; r < kRows; ++r) sum[r][x] = hn::MulAdd(hn::Set(d, query[r]), k, sum[r][x]);
    }
  for (int r = 0; r < kRows; ++r)
    for (int x = 0; x < kVectors; ++x)
      hn::StoreU(
          sum[r][x], d,
          out + static_cast<std::size_t>(r) * out_stride + static_cast<std::size_t>(x) * lanes);
}

/// The same for all rows of a tile and keys [0, count), rounded up to whole blocks.
template <class F>
HWY_INLINE void DotTile(std::size_t rows, std::size_t channels, const double* key,
                        std::size_t key_stride, std::size_t count, const double* query, double* out,
                        std::size_t out_stride, F f) {
  const std::size_t lanes = hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<double>());
  if (rows == kTileRows) {
    for (std::size_t j = 0; j < count; j += 2 * lanes)
      DotBlock<kTileRows, 2>(channels, key + j, key_stride, query, out + j, out_stride, f);
    return;
  }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < count; j += 4 * lanes)
      DotBlock<1, 4>(channels, key + j, key_stride, query + r, out + r * out_stride + j, out_stride,
                     f);
}

/// sum |q k|, with `squares` sum (q k)^2, and the same over the norms of rotated pairs: what bounds
/// need, in double whatever the scores are computed in.
HWY_INLINE void AbsoluteTile(const ColumnMajor& k, const ColumnMajor& q, std::size_t count,
                             bool squares, TileScores& tile) {
  const double* key = k.high.data() + tile.first_key;
  DotTile(q.rows, k.channels, key, k.stride, count, q.abs.data(), tile.abs_dot.data(), tile.stride,
          Absolute());
  if (squares)
    DotTile(q.rows, k.channels, key, k.stride, count, q.square.data(), tile.square_dot.data(),
            tile.stride, Square());
  if (k.pairs == 0) return;
  const double* norm = k.norm.data() + tile.first_key;
  DotTile(q.rows, k.pairs, norm, k.stride, count, q.norm.data(), tile.rope_abs.data(), tile.stride,
          Identity());
  if (squares)
    DotTile(q.rows, k.pairs, norm, k.stride, count, q.norm_square.data(), tile.rope_square.data(),
            tile.stride, Square());
}

HWY_INLINE void ScaleInPlace(double* values, std::size_t n, double factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  for (std::size_t x = 0; x < n; x += hn::Lanes(d))
    hn::StoreU(hn::Mul(hn::LoadU(d, values + x), hn::Set(d, factor)), d, values + x);
}

/// The largest of n values, none of them below kNoScore.
HWY_INLINE double LargestOf(const double* values, std::size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  auto largest = hn::Set(d, kNoScore);
  for (std::size_t x = 0; x < n; x += hn::Lanes(d))
    largest = hn::Max(largest, hn::IfThenElse(hn::FirstN(d, n - x), hn::LoadU(d, values + x),
                                              hn::Set(d, kNoScore)));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// 1 - tanh^2 x, without the cancellation that makes it 0 beyond |x| = 19.
template <class V>
HWY_INLINE V TanhSlope(V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  const V E = hn::Exp(d, hn::Mul(hn::Set(d, -2.0), hn::Abs(x))), sum = hn::Add(hn::Set(d, 1.0), E);
  return hn::Div(hn::Mul(hn::Set(d, 4.0), E), hn::Mul(sum, sum));
}

/// Puts the scale into A, Q2 and their kin.
HWY_INLINE void ScaleMagnitudes(const ScoreRules& rules, RowScores& row) {
  const double scale = rules.scale < 0 ? -rules.scale : rules.scale;
  row.max_abs_dot = LargestOf(row.abs_dot.data(), row.n);
  ScaleInPlace(row.abs_dot.data(), row.n, scale);
  ScaleInPlace(row.square_dot.data(), row.n, scale * scale);
  if (!rules.rope) return;
  ScaleInPlace(row.rope_abs.data(), row.n, scale);
  ScaleInPlace(row.rope_square.data(), row.n, scale * scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_DOT_TILE_INL_H_
