// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x726f706567726964u;
// Prime, and larger than any grid: steps of it visit every point, far ones after each other.
constexpr std::uint64_t kStep = 15485863;

struct Point {
  std::int64_t rope_dim, start;
};

/// Every number of rotated channels up to 258 near position 0, and positions around powers of two,
/// where tables end and narrow types stop counting, up to a million.
std::vector<Point> grid() {
  std::vector<Point> points;
  for (std::int64_t dim = 2; dim <= 258; dim += 2) points.push_back({dim, dim % 14});
  for (std::int64_t power = 64; power <= 1 << 20; power *= 2)
    for (const std::int64_t dim : {2, 8, 64}) points.push_back({dim, power - 2});
  return points;
}

AttentionProblem draw_point(const Declaration& declaration, std::uint64_t seed,
                            std::uint64_t index) {
  static const std::vector<Point> points = grid();
  const Point& point = points[index * kStep % points.size()];
  const std::uint64_t lot = mix(seed, kTag, index, 0, 0, 0);
  AttentionProblem p;
  p.operation = Operation::rope;
  p.dtype = declaration.dtypes[static_cast<std::size_t>(lot % declaration.dtypes.size())];
  p.seed = lot >> 44;
  p.rope = (lot >> 8) % 2 == 0 ? RopePairing::half : RopePairing::interleaved;
  p.head_dim = point.rope_dim;
  if ((lot >> 9) % 4 == 0) {
    p.rope_dim = point.rope_dim;
    p.head_dim += 1 + static_cast<std::int64_t>((lot >> 12) % 5);
  }
  p.q_len = 4;
  p.q_offset = {point.start};
  p.rope_inverse = (lot >> 16) % 4 == 0;
  if ((lot >> 18) % 4 == 0) p.layout = Layout::blhd;
  return make_legal(p, declaration);
}

ATTEST_REQUIREMENT(rope_grid,
                   {
                       .id = "ROPE-GRID",
                       .sentence = "values are right for every number of rotated channels up to "
                                   "258, and at positions around every power of two up to 2^20",
                       .operation = Operation::rope,
                       .draw = draw_point,
                       .check = check_outputs,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
