// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6361636865677269u;
// Prime, and larger than any grid: steps of it visit every point, far ones after each other.
constexpr std::uint64_t kStep = 15485863;

/// Rows before and with the call, and the cache they go into.
struct Point {
  CacheKind kind;
  std::int64_t cached, new_rows, cache_rows, page_size;
};

/// Lengths around every multiple of a page up to the fourth, with one new row, two, and a page.
void add_pages(const Declaration& declaration, std::vector<Point>& points) {
  for (const std::int64_t size : {1, 2, 4, 5, 8, 16, 32, 64, 128, 256}) {
    if (!contains(declaration.cache.page_sizes, size)) continue;
    for (std::int64_t pages = 0; pages <= 4 && pages * size <= 256; ++pages)
      for (std::int64_t off = -2; off <= 1; ++off)
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, size})
          if (pages * size + off >= 0)
            points.push_back({CacheKind::paged, pages * size + off, rows, 0, size});
  }
}

/// Totals exactly at, one before and one after every turn of a ring up to the third.
void add_rings(std::vector<Point>& points) {
  for (const std::int64_t ring : {1, 2, 3, 4, 7, 8, 16, 33, 64})
    for (std::int64_t turn = 1; turn <= 3; ++turn)
      for (std::int64_t off = -1; off <= 1; ++off)
        for (const std::int64_t rows : {1, 2, 3}) {
          const std::int64_t cached = turn * ring + off - rows;
          if (rows <= ring && cached >= 0)
            points.push_back({CacheKind::ring, cached, rows, ring, 0});
        }
}

/// Every length up to 257, those around powers of two beyond, and those at which the kernel changes
/// its algorithm.
void add_lengths(const Declaration& declaration, CacheKind kind, std::vector<Point>& points) {
  const auto add = [&](std::int64_t cached, std::int64_t rows) {
    points.push_back({kind, cached, rows, 0, kind == CacheKind::paged ? 16 : 0});
  };
  for (std::int64_t cached = 0; cached <= 256; ++cached) add(cached, 1);
  for (const std::int64_t edge : {512, 1024, 2048, 4096})
    for (std::int64_t off = -2; off <= 0; ++off) add(edge + off, 1);
  for (const std::int64_t edge : declaration.switch_lengths)
    for (std::int64_t off = -3; off <= 1; ++off)
      for (const std::int64_t rows : {1, 2, 5})
        if (edge + off >= 0 && edge <= 65536) add(edge + off, rows);
}

std::vector<Point> grid(const Declaration& declaration) {
  std::vector<Point> points;
  const CacheScope& cache = declaration.cache;
  if (cache.paged) add_pages(declaration, points);
  if (cache.ring && declaration.has(Feature::window_left)) add_rings(points);
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged})
    if (cache.serves(kind)) add_lengths(declaration, kind, points);
  return points;
}

AttentionProblem draw_point(const Declaration& declaration, std::uint64_t seed,
                            std::uint64_t index) {
  const std::vector<Point> points = grid(declaration);
  AttentionProblem p;
  p.operation = Operation::decode;
  if (points.empty()) return make_legal(p, declaration);
  const Point& point = points[index * kStep % points.size()];
  const std::uint64_t lot = mix(seed, kTag, index, 0, 0, 0);
  p.dtype = declaration.dtypes[static_cast<std::size_t>(lot % declaration.dtypes.size())];
  p.seed = lot >> 44;
  p.base = declaration.has(Feature::causal) ? Base::causal : Base::full;
  p.batch = 1 + static_cast<std::int64_t>((lot >> 8) % 2);
  p.num_heads = p.num_kv_heads = 1;
  if ((lot >> 9) % 2 == 0 && declaration.has(Feature::gqa)) p.num_heads = 2;
  p.head_dim = p.v_head_dim = 4;
  p.q_len = point.new_rows;
  p.kv_len = point.cached + point.new_rows;
  p.cache = point.kind;
  p.cache_rows = point.cache_rows;
  p.page_size = point.page_size;
  if (point.kind == CacheKind::paged) p.pages = static_cast<PageOrder>((lot >> 10) % 3);
  if (point.kind == CacheKind::ring && point.cache_rows > 0 && point.cache_rows < p.kv_len)
    p.window_left = point.cache_rows - point.new_rows;
  p.want_lse = declaration.has(Feature::lse);
  if ((lot >> 12) % 4 == 0) p.layout = Layout::blhd;
  p.data = (lot >> 14) % 3 == 0   ? Family::needle
           : (lot >> 14) % 3 == 1 ? Family::addressed
                                  : Family::gaussian;
  if ((lot >> 16) % 4 == 0) p.rope = RopePairing::half;
  return make_legal(p, declaration);
}

ATTEST_REQUIREMENT(cache_grid,
                   {
                       .id = "CACHE-GRID",
                       .sentence = "values are right at the edges of pages, around every turn of a "
                                   "ring, at every length up to 257, and where the kernel changes "
                                   "its algorithm",
                       .operation = Operation::decode,
                       .draw = draw_point,
                       .check = check_outputs,
                       .share = 200,
                   });

}  // namespace
}  // namespace attest
