// SPDX-License-Identifier: Apache-2.0
// A small named-index contraction: contract("rqd,dk->rqk", a, b) sums over the indices that the
// result does not name. Plain arrays, one letter an axis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attest {

/// A dense row-major array whose axes have one-letter names.
template <class T>
struct Named {
  std::string_view axes;
  std::vector<std::int64_t> extents;
  std::vector<T> values;

  Named() = default;
  /// All zero. Extents are those of the axes, in order.
  Named(std::string_view names, std::vector<std::int64_t> sizes) { reset(names, std::move(sizes)); }

  /// The same, in memory that is already there.
  void reset(std::string_view names, std::vector<std::int64_t> sizes) {
    axes = names;
    extents = std::move(sizes);
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    values.assign(static_cast<std::size_t>(count), T{});
  }

  /// Extent of the axis with this name; 1 where there is none.
  std::int64_t extent(char axis) const {
    const std::size_t at = axes.find(axis);
    return at == std::string_view::npos ? 1 : extents[at];
  }

  /// Elements between neighbours along the axis; 0 where there is none.
  std::int64_t stride(char axis) const {
    const std::size_t at = axes.find(axis);
    if (at == std::string_view::npos) return 0;
    std::int64_t stride = 1;
    for (std::size_t i = at + 1; i < extents.size(); ++i) stride *= extents[i];
    return stride;
  }
};

/// out[...] = sum of a[...] * b[...] over every index that out does not name, in ascending order of
/// those indices. Throws std::logic_error where arrays and spec disagree. `spec` is "axes of a,axes
/// of b->axes of out"; every axis of out is one of a or b. `only`, with the axes of a, leaves out
/// the products whose entry is 0: there not even NaN * 0 counts. The last axis of out must be the
/// last of b and none of a: it is the inner loop.
template <class T>
void contract(std::string_view spec, const Named<T>& a, const Named<T>& b, Named<T>& out,
              const Named<std::uint8_t>* only = nullptr) {
  const std::size_t comma = spec.find(','), arrow = spec.find("->");
  if (comma == spec.npos || arrow == spec.npos || a.axes != spec.substr(0, comma) ||
      b.axes != spec.substr(comma + 1, arrow - comma - 1))
    throw std::logic_error("contract: arrays do not have the axes of " + std::string(spec));
  const std::string_view result = spec.substr(arrow + 2);
  if (result.empty() || b.axes.empty() || b.axes.back() != result.back() ||
      a.axes.find(result.back()) != std::string_view::npos)
    throw std::logic_error("contract: no inner loop in " + std::string(spec));
  const char inner = result.back();

  struct Loop {
    std::int64_t extent, in_a, in_b, in_out, index;
  };
  std::vector<Loop> loops;  // outermost first: the axes of the result, then those summed over
  std::vector<std::int64_t> sizes;
  const auto add = [&](char axis) {
    loops.push_back({a.axes.find(axis) == std::string_view::npos ? b.extent(axis) : a.extent(axis),
                     a.stride(axis), b.stride(axis), 0, 0});
  };
  for (const char axis : result.substr(0, result.size() - 1)) {
    add(axis);
    sizes.push_back(loops.back().extent);
  }
  sizes.push_back(b.extent(inner));
  out.reset(result, sizes);
  for (std::size_t i = 0; i < loops.size(); ++i) loops[i].in_out = out.stride(result[i]);
  for (const char axis : a.axes)
    if (result.find(axis) == std::string_view::npos) add(axis);

  const std::int64_t n = b.extent(inner);
  for (const char axis : a.axes)
    if (b.axes.find(axis) != std::string_view::npos && a.extent(axis) != b.extent(axis))
      throw std::logic_error("contract: extents differ along " + std::string(1, axis));
  for (const Loop& loop : loops)
    if (loop.extent == 0) return;
  const T* from_a = a.values.data();
  const T* from_b = b.values.data();
  T* to = out.values.data();
  for (;;) {
    if (!only || only->values[static_cast<std::size_t>(from_a - a.values.data())]) {
      const T factor = *from_a;
      const T* const __restrict row = from_b;
      T* const __restrict sum = to;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * row[i];
    }
    std::size_t l = loops.size();
    for (; l > 0; --l) {
      Loop& loop = loops[l - 1];
      from_a += loop.in_a, from_b += loop.in_b, to += loop.in_out;
      if (++loop.index < loop.extent) break;
      from_a -= loop.in_a * loop.extent, from_b -= loop.in_b * loop.extent;
      to -= loop.in_out * loop.extent;
      loop.index = 0;
    }
    if (l == 0) return;
  }
}

}  // namespace attest
