// SPDX-License-Identifier: Apache-2.0
#include "bench/cost/pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/data.hpp"
#include "reference/number.hpp"
#include "reference/row_kind.hpp"
#include "reference/visible.hpp"

namespace attest {

namespace {

/// Key positions [begin, end); none where end <= begin.
struct Interval {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
};

Interval cut(Interval a, Interval b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// The keys that one row sees: those around it, and global ones before them.
struct Seen {
  Interval global, near;
  std::int64_t size() const { return global.size() + near.size(); }
};

/// base and band of docs/semantics.md section 3 as intervals.
Seen seen_by(const AttentionProblem& problem, const Segment& segment, std::int64_t position) {
  Interval base{0, segment.k1 - segment.k0};
  if (problem.base != Base::full) {
    std::int64_t end = position + 1;
    if (problem.base == Base::prefix) end = std::max(end, segment.prefix_len);
    base.end = std::min(base.end, end);
  }
  const bool global_query = position >= 0 && position < problem.global_tokens;
  if ((problem.window_left < 0 && problem.window_right < 0) || global_query) return {{}, base};
  // A window may be as large as the type: cut to what two rows can be apart.
  const std::int64_t far = base.end + std::abs(position) + 1;
  const auto reach = [far](std::int64_t window) {
    return window < 0 ? far : std::min(window, far);
  };
  Seen seen;
  seen.near = cut(
      base, {position - reach(problem.window_left), position + reach(problem.window_right) + 1});
  seen.global = cut(base, {0, problem.global_tokens});
  if (seen.near.size() == 0) return {seen.global, {}};
  seen.global.end = std::min(seen.global.end, seen.near.begin);
  return seen;
}

/// The tiles that an interval touches.
Interval tiles_of(Interval keys, std::int64_t width) {
  if (keys.size() == 0) return {};
  return {keys.begin / width, (keys.end - 1) / width + 1};
}

/// What rows have seen together, tile by tile: how many more begin at a tile than end there, so
/// that a row costs two steps however much it sees.
class TileSet {
 public:
  explicit TileSet(std::int64_t count) : begins_(static_cast<std::size_t>(count + 1)) {}

  void add(Interval tiles) {
    if (tiles.size() == 0) return;
    ++begins_[static_cast<std::size_t>(tiles.begin)];
    --begins_[static_cast<std::size_t>(tiles.end)];
  }
  void join(const TileSet& other) {
    for (std::size_t t = 0; t < begins_.size(); ++t) begins_[t] += other.begins_[t];
  }
  void clear() { std::fill(begins_.begin(), begins_.end(), 0); }

  /// Calls body(t) for each tile that was seen.
  template <class Body>
  void for_each(Body&& body) const {
    std::int64_t open = 0;
    for (std::size_t t = 0; t + 1 < begins_.size(); ++t)
      if ((open += begins_[t]) > 0) body(static_cast<std::int64_t>(t));
  }
  double count() const {
    double sum = 0;
    for_each([&](std::int64_t) { ++sum; });
    return sum;
  }
  /// Of `keys` keys, those in tiles that were seen.
  double keys(std::int64_t width, std::int64_t keys) const {
    double sum = 0;
    for_each(
        [&](std::int64_t t) { sum += static_cast<double>(std::min(width, keys - t * width)); });
    return sum;
  }

 private:
  std::vector<std::int64_t> begins_;
};

std::int64_t tiles_in(std::int64_t keys, std::int64_t width) { return (keys + width - 1) / width; }

bool counts_by_position(const AttentionProblem& problem) {
  return problem.mask == MaskKind::none && !problem.blocks && problem.dropout_p == 0 &&
         problem.bias != BiasKind::neg_inf && problem.bias != BiasKind::list;
}

/// One segment for all heads, which see the same.
void count_segment(const AttentionProblem& problem, const Segment& segment, const PairTile& tile,
                   PairCounts& counts) {
  const std::int64_t queries = segment.q1 - segment.q0, keys = segment.k1 - segment.k0;
  const auto heads = static_cast<double>(problem.num_heads);
  const auto kv_heads = static_cast<double>(problem.num_kv_heads);
  TileSet all(tiles_in(keys, tile.keys)), strip = all;
  for (std::int64_t i = 0; i < queries; ++i) {
    const Seen seen = seen_by(problem, segment, i + segment.offset);
    const auto visible = static_cast<double>(seen.size());
    counts.visible += heads * visible;
    if (visible > 0) counts.rows_with_key += heads;
    const Interval global = tiles_of(seen.global, tile.keys);
    Interval near = tiles_of(seen.near, tile.keys);
    if (near.size() > 0 && global.size() > 0) near.begin = std::max(near.begin, global.end);
    const auto touched = static_cast<double>(global.size() + near.size());
    counts.row_tiles += heads * touched;
    all.add(global), all.add(near);
    if (tile.rows == 1) {
      counts.tiles += heads * touched;
      continue;
    }
    strip.add(global), strip.add(near);
    if ((i + 1) % tile.rows == 0 || i + 1 == queries) {
      counts.tiles += heads * strip.count();
      strip.clear();
    }
  }
  counts.rows += heads * static_cast<double>(queries);
  counts.grid += heads * static_cast<double>(queries) * static_cast<double>(keys);
  counts.keys += kv_heads * static_cast<double>(keys);
  if (queries > 0) counts.keys_of_queries += kv_heads * static_cast<double>(keys);
  counts.tile_keys += kv_heads * all.keys(tile.keys, keys);
}

void count_sinks(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t h,
                 const PairCounts& before, PairCounts& counts) {
  if (problem.sink == SinkKind::none || sink_at(inputs, h) == -infinity<double>()) return;
  counts.sink_rows += counts.rows - before.rows;
  counts.sink_rows_with_key += counts.rows_with_key - before.rows_with_key;
}

/// One segment and query head, pair by pair. `group` are the tiles that its heads see together.
void count_pairs_of(const AttentionProblem& problem, const AttentionInputs& inputs,
                    const Rows& rows, const Segment& segment, std::int64_t b, std::int64_t h,
                    const PairTile& tile, TileSet& group, PairCounts& counts) {
  const std::int64_t queries = segment.q1 - segment.q0, keys = segment.k1 - segment.k0;
  TileSet strip(tiles_in(keys, tile.keys)), scored_tiles = strip;
  for (std::int64_t i = segment.q0; i < segment.q1; ++i) {
    double scored = 0;
    for (std::int64_t j = segment.k0; j < segment.k1; ++j) {
      const bool kept = !inputs.keep.present || inputs.keep.at(b, h, i, j) != 0;
      if (kept) ++counts.kept_grid;
      if (!visible(problem, inputs, rows, b, h, i, j)) continue;
      ++counts.visible;
      const std::int64_t t = (j - segment.k0) / tile.keys;
      strip.add({t, t + 1});
      if (bias_hides(inputs, b, h, i, j)) continue;
      ++scored;
      if (kept) ++counts.kept;
      scored_tiles.add({t, t + 1});
    }
    counts.scored += scored;
    if (scored > 0) ++counts.rows_with_key;
    counts.row_tiles += scored_tiles.count();
    scored_tiles.clear();
    if ((i + 1 - segment.q0) % tile.rows == 0 || i + 1 == segment.q1) {
      counts.tiles += strip.count();
      group.join(strip);
      strip.clear();
    }
  }
  counts.rows += static_cast<double>(queries);
  counts.grid += static_cast<double>(queries) * static_cast<double>(keys);
}

}  // namespace

PairCounts count_pairs(const AttentionProblem& problem, const AttentionInputs& inputs,
                       const PairTile& tile) {
  PairCounts counts;
  const std::int64_t share = problem.num_heads / problem.num_kv_heads;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (const Segment& segment : rows.segments)
      for (std::int64_t g = 0; g < problem.num_kv_heads; ++g) {
        const std::int64_t keys = segment.k1 - segment.k0;
        TileSet group(tiles_in(keys, tile.keys));
        for (std::int64_t h = g * share; h < (g + 1) * share; ++h) {
          const PairCounts before = counts;
          count_pairs_of(problem, inputs, rows, segment, b, h, tile, group, counts);
          count_sinks(problem, inputs, h, before, counts);
        }
        counts.keys += static_cast<double>(keys);
        if (segment.q1 > segment.q0) counts.keys_of_queries += static_cast<double>(keys);
        counts.tile_keys += group.keys(tile.keys, keys);
      }
  }
  return counts;
}

Result<PairCounts> count_pairs(const AttentionProblem& problem, const PairTile& tile) {
  if (problem.operation == Operation::decode) return count_pairs(forward_of(problem), tile);
  if (!counts_by_position(problem) || problem.sink != SinkKind::none) {
    // 10 ns a pair; the tensors take up to 8 bytes.
    constexpr double kMostPairs = 1e9;
    const double pairs = static_cast<double>(problem.batch) *
                         static_cast<double>(problem.num_heads) *
                         static_cast<double>(problem.q_len) * static_cast<double>(problem.kv_len);
    if (pairs > kMostPairs)
      return Error{
          fmt::format("{:.3g} pairs of a query and a key: with a mask, blocks, dropout, sinks or a "
                      "bias of -inf "
                      "each is looked at, and {:.0g} are the most",
                      pairs, kMostPairs)};
    return count_pairs(problem, make_inputs(problem), tile);
  }
  PairCounts counts;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (const Segment& segment : rows_of(problem, b).segments)
      count_segment(problem, segment, tile, counts);
  counts.scored = counts.kept = counts.visible;
  counts.kept_grid = counts.grid;
  return counts;
}

}  // namespace attest
