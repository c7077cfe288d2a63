// SPDX-License-Identifier: Apache-2.0
// RoPE from tables of cos and sin, a vector of pairs at a time, in the widest SIMD that the machine
// has. docs/semantics.md, section 4.
//
// In the precision of the row: a turned channel is off by about 2 of its roundings, and the table
// adds one. The bits depend on the SIMD target (it may fuse), never on the row's place.
#pragma once

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impls/rope_table-inl.hpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which includes it for all targets but the last.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "attest/plugin.h"
#include "attest/tensor.hpp"
#include "impls/rope_table-inl.hpp"

namespace attest {

/// cos and sin of theta_t at position first + r in row r: [rows, rope_dim/2], any strides.
template <class C>
struct RopeTable {
  TensorView<const C> cosines, sines;
  std::int64_t first = 0;
};

HWY_EXPORT(RotateFloat);
HWY_EXPORT(RotateDouble);

namespace detail {

/// Row r of the table, in `copy` where its elements do not lie side by side.
template <class C>
const C* rope_table_row(const TensorView<const C>& table, std::int64_t r, std::int64_t pairs,
                        std::vector<C>& copy) {
  if (table.stride(1) == 1) return &table(r, 0);
  copy.resize(static_cast<std::size_t>(pairs));
  for (std::int64_t t = 0; t < pairs; ++t) copy[static_cast<std::size_t>(t)] = table(r, t);
  return copy.data();
}

}  // namespace detail

/// row := R(position) row, of which rope_dim channels turn; with direction -1 the way back. Pairing
/// is ATTEST_ROPE_INTERLEAVED or ATTEST_ROPE_HALF; the table has a row for the position.
template <class C>
void rope_by_table(C* row, std::int32_t pairing, std::int64_t rope_dim, const RopeTable<C>& table,
                   std::int64_t position, int direction = 1) {
  thread_local std::vector<C> cosine_copy, sine_copy;
  const std::int64_t r = position - table.first, pairs = rope_dim / 2;
  const C* const cosines = detail::rope_table_row(table.cosines, r, pairs, cosine_copy);
  const C* const sines = detail::rope_table_row(table.sines, r, pairs, sine_copy);
  const bool interleaved = pairing == ATTEST_ROPE_INTERLEAVED;
  const auto sign = static_cast<C>(direction);
  const auto count = static_cast<std::size_t>(pairs);
  if constexpr (std::is_same_v<C, double>)
    HWY_DYNAMIC_DISPATCH(RotateDouble)(row, interleaved, count, cosines, sines, sign);
  else
    HWY_DYNAMIC_DISPATCH(RotateFloat)(row, interleaved, count, cosines, sines, sign);
}

}  // namespace attest
