// SPDX-License-Identifier: Apache-2.0
#include "harness/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "harness/machine_support.hpp"
#include "harness/poison.hpp"

namespace attest::machine_test {
namespace {

const TensorForm& form_of(const CallForm& form, Slot slot) {
  return form[static_cast<std::size_t>(slot)];
}

/// Every element's place, in elements from the start of the block.
std::multiset<std::int64_t> places(const TensorForm& form) {
  std::multiset<std::int64_t> all;
  for (std::int64_t a = 0; a < form.shape[0]; ++a)
    for (std::int64_t b = 0; b < form.shape[1]; ++b)
      for (std::int64_t c = 0; c < form.shape[2]; ++c)
        for (std::int64_t d = 0; d < form.shape[3]; ++d)
          all.insert(form.first + a * form.strides[0] + b * form.strides[1] + c * form.strides[2] +
                     d * form.strides[3]);
  return all;
}

AttentionProblem uneven() {
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads = 6;
  problem.num_kv_heads = 3;
  problem.q_len = 5;
  problem.kv_len = 7;
  problem.head_dim = problem.v_head_dim = 4;
  return problem;
}

using Strides = std::array<std::int64_t, 4>;

TEST(Layout, StridesAreThoseOfTheName) {
  AttentionProblem problem = uneven();
  const auto strides = [&problem](Layout layout, Slot slot) {
    problem.layout = layout;
    return form_of(call_form(problem, 0), slot).strides;
  };
  EXPECT_EQ(strides(Layout::bhld, Slot::k), (Strides{84, 28, 4, 1}));
  EXPECT_EQ(strides(Layout::blhd, Slot::k), (Strides{84, 4, 12, 1}));
  EXPECT_EQ(strides(Layout::bhdl, Slot::k), (Strides{84, 28, 1, 7}));
  EXPECT_EQ(strides(Layout::kv_packed, Slot::k), (Strides{168, 8, 24, 1}));
  EXPECT_EQ(strides(Layout::kv_packed, Slot::q), (Strides{120, 4, 24, 1}));
  EXPECT_EQ(strides(Layout::broadcast, Slot::v), (Strides{0, 4, 12, 1}));
  EXPECT_EQ(strides(Layout::broadcast, Slot::q), (Strides{120, 4, 24, 1}));
  // Rows of 4 with 3 unused, heads of 5 rows with 5, sequences of 6 heads with 7.
  EXPECT_EQ(strides(Layout::strided, Slot::q), (Strides{6 * 40 + 7, 40, 7, 1}));
  // v and o have gaps of their own: 9, 3, 5 and 5, 9, 7.
  EXPECT_EQ(strides(Layout::strided, Slot::v), (Strides{3 * 66 + 9, 66, 9, 1}));
  EXPECT_EQ(strides(Layout::strided, Slot::o), (Strides{6 * 64 + 5, 64, 11, 1}));
}

TEST(Layout, NoTwoElementsShareAPlaceButInBroadcast) {
  for (int layout = 0; layout <= static_cast<int>(Layout::far); ++layout) {
    AttentionProblem problem = uneven();
    problem.layout = static_cast<Layout>(layout);
    problem.bias = BiasKind::normal;
    problem.mask = MaskKind::random;
    const CallForm form = call_form(problem, 0);
    for (const TensorForm& tensor : form) {
      if (!tensor.present) continue;
      const auto all = places(tensor);
      const std::set<std::int64_t> different(all.begin(), all.end());
      const bool shared =
          problem.layout == Layout::broadcast && (tensor.home == Slot::k || tensor.home == Slot::v);
      EXPECT_EQ(different.size() * (shared ? 2 : 1), all.size());
      EXPECT_EQ(*different.rbegin() - tensor.first + 1, tensor.span());
    }
    if (problem.layout != Layout::kv_packed) continue;
    auto k = places(form_of(form, Slot::k));
    k.merge(places(form_of(form, Slot::v)));
    EXPECT_EQ(std::set<std::int64_t>(k.begin(), k.end()).size(), 2u * 168u);
    EXPECT_EQ(*k.rbegin(), 2 * 168 - 1);
  }
}

TEST(Layout, FarRowsHaveRegionsOfTheirOwn) {
  // 40 rows, some 8 GiB apart: the thread sanitizer leaves a program 1.5 TiB of addresses to map.
  AttentionProblem problem = uneven();
  problem.layout = Layout::far;
  problem.num_heads = problem.num_kv_heads = problem.q_len = problem.kv_len = 2;
  const CallForm form = call_form(problem, 0);
  const TensorForm& k = form_of(form, Slot::k);
  EXPECT_EQ(k.strides[3], 1);
  for (const std::size_t axis : {0, 1, 2}) EXPECT_GT(k.strides[axis], std::int64_t{1} << 31);
  EXPECT_GT(k.strides[1], 2 * k.strides[2]);
  EXPECT_GT(k.strides[0], 2 * k.strides[1]);
  EXPECT_GT(form_of(form, Slot::lse).strides[2], std::int64_t{1} << 31);
  Arena arena;
  ASSERT_EQ(arena.reserve_far(slot_bytes(form, 0)), std::nullopt);
  EXPECT_TRUE(arena.is_far());
  PlacedCall call{};
  place(form, arena, 0, Flush::high, call);
  std::size_t rows = 0;
  for (const Region& region : regions_of(form, call, arena)) {
    EXPECT_TRUE(region.far);
    EXPECT_LE(region.window_end - region.window_begin, 3u * 4096u);
    rows += region.slot == Slot::k;
  }
  EXPECT_EQ(rows, 2u * 2u * 2u);
  // What is touched is what the rows need, whatever lies between them.
  EXPECT_LT(touched_bytes(form), std::int64_t{16} << 20);
  ASSERT_EQ(arena.reserve(slot_bytes(call_form(uneven(), 0), 0)), std::nullopt);
  EXPECT_FALSE(arena.is_far());
}

TEST(Layout, PackedKAndVFallBackWhereTheyDiffer) {
  AttentionProblem problem = uneven();
  problem.layout = Layout::kv_packed;
  problem.v_head_dim = 5;
  EXPECT_EQ(form_of(call_form(problem, 0), Slot::v).home, Slot::v);
  EXPECT_EQ(form_of(call_form(problem, 0), Slot::k).strides, (Strides{84, 4, 12, 1}));
  problem.v_head_dim = 4;
  EXPECT_EQ(form_of(call_form(problem, 16), Slot::v).home, Slot::k);
  EXPECT_EQ(form_of(call_form(problem, 32), Slot::v).home, Slot::v);
}

TEST(Place, LiesAgainstTheEndOfTheSlot) {
  Arena arena;
  const AttentionProblem problem = uneven();
  for (int alignment : {0, 4, 16, 64}) {
    const CallForm form = call_form(problem, alignment);
    ASSERT_EQ(arena.reserve(slot_bytes(form, alignment)), std::nullopt);
    PlacedCall call{};
    for (Flush flush : {Flush::high, Flush::low}) {
      place(form, arena, alignment, flush, call);
      for (Slot slot : {Slot::q, Slot::k, Slot::v, Slot::o, Slot::lse}) {
        const PlacedTensor& tensor = call.tensors[static_cast<int>(slot)];
        const SlotRange& range = arena.slot(slot);
        ASSERT_TRUE(tensor.present);
        EXPECT_EQ(tensor.offset % static_cast<std::uint64_t>(std::max(alignment, 4)), 0u);
        EXPECT_GE(tensor.extent_begin, range.offset);
        EXPECT_LE(tensor.extent_end, range.offset + range.bytes);
        const std::uint64_t slack = flush == Flush::low
                                        ? tensor.extent_begin - range.offset
                                        : range.offset + range.bytes - tensor.extent_end;
        EXPECT_LT(slack,
                  static_cast<std::uint64_t>(flush == Flush::low ? 1 : std::max(alignment, 4)));
      }
    }
  }
}

TEST(Place, WhatHasNoElementsPointsIntoAGuard) {
  Arena arena;
  AttentionProblem problem = uneven();
  problem.kv_len = 0;
  const CallForm form = call_form(problem, 0);
  PlacedCall call{};
  for (Flush flush : {Flush::high, Flush::low}) {
    place(form, arena, 0, flush, call);
    const std::uint64_t offset = call.tensors[static_cast<int>(Slot::k)].offset;
    const SlotRange& slot = arena.slot(Slot::k);
    EXPECT_TRUE(offset >= slot.offset + slot.bytes || offset < slot.offset);
    EXPECT_GE(offset, slot.offset - kGuardBytes);
    EXPECT_LT(offset, slot.offset + slot.bytes + kGuardBytes);
  }
}

TEST(Poison, IsTheSameWhereverTheFillBegins) {
  alignas(16) std::array<std::byte, 256> whole, parts;
  for (int e = 0; e <= static_cast<int>(Element::i32); ++e)
    for (Poison poison : {Poison::nan, Poison::finite}) {
      const auto element = static_cast<Element>(e);
      const auto size = static_cast<std::size_t>(size_of(element));
      // The tensor begins in the middle.
      const std::size_t first = 64;
      fill_poison(whole.data(), whole.data() + 256, whole.data() + first, element, poison);
      for (std::size_t cut : {0u, 8u, 24u, 64u, 104u, 248u, 256u}) {
        fill_poison(parts.data(), parts.data() + cut, parts.data() + first, element, poison);
        fill_poison(parts.data() + cut, parts.data() + 256, parts.data() + first, element, poison);
        EXPECT_EQ(whole, parts);
      }
      for (std::size_t at = 0; at < 256; at += size) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, whole.data() + at, size);
        const auto distance =
            (static_cast<std::int64_t>(at) - 64) / static_cast<std::int64_t>(size);
        EXPECT_EQ(bits, poison_bits(element, poison, distance));
      }
    }
}

TEST(Poison, IsWhatItSays) {
  for (DType type : kAllDTypes) {
    const Element element = element_of(type);
    const std::uint64_t nan = poison_bits(element, Poison::nan, 0);
    EXPECT_TRUE(std::isnan(load(&nan, type)));
    // No operation gives this NaN: the default one has no payload.
    std::uint64_t plain = 0;
    store(&plain, type, std::nan(""));
    EXPECT_NE(nan, plain);
    const std::uint64_t even = poison_bits(element, Poison::finite, 0);
    const std::uint64_t odd = poison_bits(element, Poison::finite, 1);
    EXPECT_GT(load(&even, type), 0.4 * std::sqrt(limits(type).max_finite));
    EXPECT_EQ(load(&odd, type), -load(&even, type));
    EXPECT_TRUE(std::isfinite(load(&even, type)));
  }
  // As booleans neither 0 nor 1; as lengths and offsets beyond any tensor, and below 0.
  EXPECT_GT(poison_bits(Element::u8, Poison::nan, 0), 1u);
  EXPECT_GT(poison_bits(Element::u8, Poison::finite, 0), 1u);
  EXPECT_GT(static_cast<std::int32_t>(poison_bits(Element::i32, Poison::nan, 0)), 1 << 30);
  EXPECT_LT(static_cast<std::int32_t>(poison_bits(Element::i32, Poison::finite, 0)), 0);
}

TEST(Poison, IsNoValueOfData) {
  std::mt19937_64 random(1);
  for (DType type : kAllDTypes)
    for (int i = 0; i < 100'000; ++i) {
      std::uint64_t bits = 0;
      store(&bits, type, (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5) * 1000);
      EXPECT_NE(bits, poison_bits(element_of(type), Poison::nan, 0));
      EXPECT_NE(bits, poison_bits(element_of(type), Poison::finite, i & 1));
    }
}

TEST(Arena, GrowsAndKeepsItsWorkspaceApart) {
  Arena arena;
  ASSERT_EQ(arena.error(), "");
  const std::uint32_t generation = arena.header().generation;
  SlotBytes bytes{};
  bytes[0] = 1000;
  EXPECT_EQ(arena.reserve(bytes), std::nullopt);
  EXPECT_EQ(arena.header().generation, generation) << "it was large enough";
  bytes[0] = 1 << 20;
  ASSERT_EQ(arena.reserve(bytes), std::nullopt);
  EXPECT_NE(arena.header().generation, generation);
  EXPECT_GE(arena.slot(Slot::q).bytes, std::uint64_t{1} << 20);
  for (int i = 0; i < kNumSlots; ++i) {
    const SlotRange& slot = arena.slot(static_cast<Slot>(i));
    std::memset(arena.base() + slot.offset, i + 1, slot.bytes);
  }
  const SlotRange k = arena.slot(Slot::k);
  ASSERT_EQ(arena.reserve_workspace(1 << 21), std::nullopt);
  EXPECT_EQ(arena.slot(Slot::k).offset, k.offset);
  EXPECT_EQ(arena.base()[k.offset], std::byte{2});
  EXPECT_EQ(arena.base()[k.offset + k.bytes - 1], std::byte{2});
  bytes[0] = 1;
  ASSERT_EQ(arena.reserve(bytes), std::nullopt);
  EXPECT_GE(arena.slot(Slot::q).bytes, std::uint64_t{1} << 20) << "it never shrinks";
}

TEST(Arena, RefusesWhatDoesNotFit) {
  Arena arena;
  SlotBytes bytes{};
  bytes[static_cast<std::size_t>(Slot::k)] = std::uint64_t{1} << 45;
  auto why = arena.reserve(bytes);
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("48.0 TiB"), std::string::npos) << *why;
  bytes[static_cast<std::size_t>(Slot::k)] = std::uint64_t{1} << 62;
  why = arena.reserve(bytes);
  ASSERT_TRUE(why);
  EXPECT_EQ(*why, "k needs 4.0 EiB of memory");
  bytes[static_cast<std::size_t>(Slot::k)] = 100;
  EXPECT_EQ(arena.reserve(bytes), std::nullopt) << "a refusal leaves the arena as it was";
}

TEST(HumanBytes, Rounds) {
  EXPECT_EQ(human_bytes(1023), "1023 bytes");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::uint64_t{3} << 30), "3.0 GiB");
}

}  // namespace
}  // namespace attest::machine_test
