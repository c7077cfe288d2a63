// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x73697a6573000000u;
// Larger than any grid, so that steps of it visit every point once, far ones after each other.
constexpr std::uint64_t kStep = 15485863;
constexpr std::int64_t kTiles[] = {16, 32, 48, 64, 96, 128, 192, 256};
constexpr std::int64_t kLongest = 257;

/// What a point fixes; the rest is drawn.
struct Point {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 3, kv_len = 5, head_dim = 4, v_dim = 4;
  int dtype = -1;  ///< place among the declared ones; -1: any
  enum Extra : std::uint8_t { drawn, mask_b, mask_h, bias_b, bias_h, slopes, blocks_b, lengths };
  Extra extra = drawn;
};

/// t - 1, t and t + 1 of every tile t along every axis, in every dtype.
void add_tile_edges(const Declaration& declaration, std::vector<Point>& points) {
  for (int dtype = 0; dtype < std::ssize(declaration.dtypes); ++dtype)
    for (const std::int64_t tile : kTiles)
      for (std::int64_t size = tile - 1; size <= tile + 1; ++size)
        for (int axis = 0; axis < 4; ++axis) {
          Point point;
          point.dtype = dtype;
          (axis == 0   ? point.q_len
           : axis == 1 ? point.kv_len
           : axis == 2 ? point.head_dim
                       : point.v_dim) = size;
          if (axis == 2) point.v_dim = size;
          points.push_back(point);
        }
}

/// Every length up to 257 of queries, and of keys: every remainder of every tile of up to 256.
void add_remainders(std::vector<Point>& points) {
  for (std::int64_t length = 1; length <= kLongest; ++length) {
    Point point;
    point.kv_len = length;
    points.push_back(point);
    point = {};
    point.q_len = length;
    point.kv_len = 2;
    points.push_back(point);
  }
}

/// One query, as in decoding, against many keys.
void add_decoding(std::vector<Point>& points) {
  for (const std::int64_t keys : {511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4095, 4096, 4097}) {
    Point point;
    point.q_len = 1;
    point.kv_len = keys;
    points.push_back(point);
  }
}

/// More sequences, heads or rows than 15 or 16 bits count, or than the second axis of a grid of
/// thread blocks has (65,535).
void add_counts(std::vector<Point>& points) {
  const auto add = [&points](std::int64_t batch, std::int64_t heads, std::int64_t q_len) {
    Point point;
    point.batch = batch;
    point.heads = point.kv_heads = heads;
    point.q_len = q_len;
    point.kv_len = point.head_dim = point.v_dim = 2;
    points.push_back(point);
  };
  add(65537, 1, 1);
  add(1, 65537, 1);
  add(257, 257, 1);
  add(1, 1, 65537);
  add(1, 1, 32769);
}

/// Axes of the same extent, all and each two of them: an index taken for another is in range there.
void add_collisions(std::vector<Point>& points) {
  constexpr int kAxes = 6;
  const auto add = [&points](const std::array<std::int64_t, kAxes>& extents) {
    for (int extra = Point::drawn; extra <= Point::lengths; ++extra) {
      Point point;
      point.batch = extents[0];
      point.heads = point.kv_heads = extents[1];
      point.q_len = extents[2];
      point.kv_len = extents[3];
      point.head_dim = extents[4];
      point.v_dim = extents[5];
      point.extra = static_cast<Point::Extra>(extra);
      points.push_back(point);
    }
  };
  for (const std::int64_t size : {2, 3, 4}) add({size, size, size, size, size, size});
  for (std::size_t a = 0; a < kAxes; ++a)
    for (std::size_t b = a + 1; b < kAxes; ++b) {
      std::array<std::int64_t, kAxes> extents{2, 3, 5, 7, 4, 6};
      extents[b] = extents[a] = std::max<std::int64_t>(3, std::min(extents[a], extents[b]));
      // What stays alone keeps an extent of its own.
      for (std::size_t c = 0; c < kAxes; ++c)
        if (c != a && c != b && extents[c] == extents[a]) extents[c] = 9;
      if (extents[0] > 3) extents[0] = 2;
      add(extents);
    }
}

std::vector<Point> grid(const Declaration& declaration) {
  std::vector<Point> points;
  add_tile_edges(declaration, points);
  add_remainders(points);
  add_decoding(points);
  add_counts(points);
  add_collisions(points);
  return points;
}

void add_extra(Point::Extra extra, AttentionProblem& p) {
  switch (extra) {
    case Point::drawn: break;
    case Point::mask_b:
    case Point::mask_h:
      p.mask = MaskKind::random;
      p.mask_axes = {extra == Point::mask_b, extra == Point::mask_h, true, true};
      break;
    case Point::bias_b:
    case Point::bias_h:
      p.bias = BiasKind::normal;
      p.bias_axes = {extra == Point::bias_b, extra == Point::bias_h, true, true};
      break;
    case Point::slopes:
      p.alibi = AlibiKind::signed_;
      p.slopes = SlopesKind::per_batch;
      break;
    case Point::blocks_b:
      p.blocks = true;
      p.block_axes = {true, false, true, true};
      p.block_q = p.block_k = 2;
      break;
    case Point::lengths:
      for (std::int64_t b = 0; b < p.batch; ++b) p.seqlens_k.push_back(1 + b % p.kv_len);
      break;
  }
}

AttentionProblem draw_point(const Declaration& declaration, std::uint64_t seed,
                            std::uint64_t index) {
  thread_local std::vector<Point> points;
  thread_local std::size_t dtypes = 0;
  if (points.empty() || dtypes != declaration.dtypes.size()) {
    points = grid(declaration);
    dtypes = declaration.dtypes.size();
  }
  const Point& point = points[index * kStep % points.size()];
  const std::uint64_t lot = mix(seed, kTag, index, 0, 0, 0);
  AttentionProblem p;
  if (dtypes > 0)
    p.dtype = declaration.dtypes[point.dtype >= 0 ? static_cast<std::size_t>(point.dtype)
                                                  : static_cast<std::size_t>(lot % dtypes)];
  p.seed = lot >> 44;
  p.batch = point.batch;
  p.num_heads = point.heads;
  p.num_kv_heads = point.kv_heads;
  p.q_len = point.q_len;
  p.kv_len = point.kv_len;
  p.head_dim = point.head_dim;
  p.v_head_dim = declaration.v_head_dims ? point.v_dim : point.head_dim;
  p.want_lse = declaration.has(Feature::lse);
  if (point.extra == Point::drawn) {
    if ((lot >> 8) % 2 == 0 && declaration.has(Feature::causal)) p.base = Base::causal;
    if ((lot >> 9) % 4 == 0 && declaration.has(Feature::window_left)) p.window_left = p.kv_len / 2;
    if ((lot >> 11) % 4 == 0) p.layout = Layout::blhd;
    if ((lot >> 13) % 4 == 0) p.data = Family::needle;
    if ((lot >> 15) % 4 == 0) p.data = Family::addressed;
  }
  add_extra(point.extra, p);
  return make_legal(p, declaration);
}

ATTEST_REQUIREMENT(
    size_grid, {
                   .id = "SIZE-GRID",
                   .sentence = "values are right around the edges of tiles, at every remainder, "
                               "and where sizes collide",
                   .draw = draw_point,
                   .check = check_outputs,
                   .share = 180,
                   .of_decode = "CACHE-SIZES",
               });

}  // namespace
}  // namespace attest
