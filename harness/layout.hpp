// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a call lie: shapes and strides from the problem, addresses from the arena.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attest/problem.hpp"
#include "harness/arena.hpp"
#include "harness/observe.hpp"
#include "harness/placed_call.hpp"

namespace attest {

/// Element types of the call's tensors; the first four are the DTypes, in their order.
enum class Element : std::uint8_t { f64, f32, f16, bf16, u8, i32 };
constexpr Element element_of(DType type) { return static_cast<Element>(type); }
constexpr std::int64_t size_of(Element element) {
  constexpr std::int64_t kSizes[] = {8, 4, 2, 2, 1, 4};
  return kSizes[static_cast<int>(element)];
}

/// One tensor without its address. Axes beyond `rank` have extent 1 and stride 0. Sizes saturate.
struct TensorForm {
  bool present = false;
  Element element = Element::f32;
  int rank = 0;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::array<std::int64_t, 4> strides{0, 0, 0, 0};  ///< elements; never negative
  Slot home = Slot::q;                              ///< where it lies: v may lie in k's slot
  std::int64_t first = 0;  ///< its first element, from the start of what lies in the slot

  std::int64_t count() const;  ///< elements
  std::int64_t span() const;   ///< elements from the first to the last one, gaps included
};
using CallForm = std::array<TensorForm, kNumSlots>;

/// Shapes as plugin.h says, strides as problem.layout says. q_offset is there where the problem
/// gives one; the encoding may leave it out. `alignment` decides whether v may stand beside k.
CallForm call_form(const AttentionProblem& problem, int alignment);

/// Positions that the RoPE tables cover: those of all real rows.
struct PositionRange {
  std::int64_t first = 0, count = 0;
};
PositionRange rope_positions(const AttentionProblem& problem);

/// Bytes that each slot must have.
SlotBytes slot_bytes(const CallForm& form, int alignment);
/// Bytes that the call's tensors touch, poison around them included: gaps between far rows are not.
std::int64_t touched_bytes(const CallForm& form);

/// Addresses in a large enough arena: flush against the given end of the slot, aligned to
/// `alignment` bytes and at least to the element. A tensor without elements points into the guard.
/// Scalars stay as they are.
void place(const CallForm& form, const Arena& arena, int alignment, Flush flush, PlacedCall& call);

/// What lies in one slot, and the bytes around it that are filled before a call and checked after
/// it: 4 KiB on each side, as far as the slot goes. What is farther off is left to the guard at the
/// other end in the other run. A tensor with far rows has a region for each row. Offsets from the
/// arena's base.
struct Region {
  Slot slot;
  Element element;
  std::uint64_t begin, end, window_begin, window_end;
  std::uint64_t origin;  ///< where the block begins
  bool far;              ///< one row of it, the others are far off
};
std::vector<Region> regions_of(const CallForm& form, const PlacedCall& call, const Arena& arena);

}  // namespace attest
