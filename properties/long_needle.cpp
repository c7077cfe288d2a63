// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6e6565646c650000u;
constexpr std::int64_t kMostKeys = 131072;

/// Enough channels for the digits of every key's number, as few as the declaration allows.
std::int64_t channels(const Declaration& declaration, std::int64_t keys) {
  const std::int64_t digits = std::bit_width(static_cast<std::uint64_t>(keys - 1));
  if (declaration.head_dims.empty()) return digits;
  std::int64_t best = 0;
  for (std::int64_t dim = 1; dim <= 256 && best < digits; ++dim)
    if (contains(declaration.head_dims, dim)) best = dim;
  return std::max<std::int64_t>(best, 1);
}

/// Hides some keys, so that a query can address one that must not be seen: in one of the ways that
/// the declaration has, `first` counting from the one that needs least of a kernel.
void hide(AttentionProblem& p, const Declaration& declaration, std::uint64_t first,
          std::uint64_t lot) {
  enum Way { lengths, causal, mask, window };
  std::vector<Way> ways;
  if (declaration.has(Feature::seqlens_k)) ways.push_back(lengths);
  if (declaration.has(Feature::causal)) ways.push_back(causal);
  if (declaration.has(Feature::mask)) ways.push_back(mask);
  if (declaration.has(Feature::window_left)) ways.push_back(window);
  if (ways.empty()) return;
  switch (ways[first % ways.size()]) {
    case causal: p.base = Base::causal; break;
    case lengths: p.seqlens_k = {p.kv_len - 1 - static_cast<std::int64_t>((lot >> 8) % 300)}; break;
    case mask:
      p.mask = MaskKind::dense;
      p.mask_axes = {false, false, false, true};
      break;
    case window: p.window_left = p.kv_len / 2 + static_cast<std::int64_t>((lot >> 8) % 64); break;
  }
}

/// Every dtype at the longest first, once for each of two ways to hide keys, then around the powers
/// of two where an index or a counter of 15, 16 or 17 bits ends.
AttentionProblem draw_long(const Declaration& declaration, std::uint64_t seed,
                           std::uint64_t index) {
  const std::uint64_t dtypes = std::max<std::size_t>(declaration.dtypes.size(), 1);
  const std::uint64_t round = index / dtypes;
  const std::uint64_t lot = mix(seed, kTag, index, 0, 0, 0);
  const auto side = static_cast<std::int64_t>(lot % 3) - 1;
  AttentionProblem p;
  if (!declaration.dtypes.empty()) p.dtype = declaration.dtypes[index % dtypes];
  p.seed = lot >> 44;
  switch (round) {
    case 0:
    case 1: p.kv_len = kMostKeys - (side + 1); break;
    case 2: p.kv_len = 65536 + side; break;
    case 3: p.kv_len = 32768 + side; break;
    default: {
      const std::int64_t power = std::int64_t{4096} << ((lot >> 8) % 6);
      p.kv_len = (lot >> 16) % 3 == 0
                     ? 4096 + static_cast<std::int64_t>((lot >> 20) % (kMostKeys - 4096))
                     : std::min(power + side, kMostKeys);
    }
  }
  p.q_len = p.kv_len > 40000 ? 16 : 32;
  p.head_dim = channels(declaration, p.kv_len);
  p.v_head_dim = declaration.v_head_dims && contains(*declaration.v_head_dims, 4) ? 4 : p.head_dim;
  p.data = Family::addressed;
  p.want_lse = declaration.has(Feature::lse);
  // One in five of the later ones hides nothing.
  if (round < 2 || (lot >> 40) % 5 != 0)
    hide(p, declaration, round < 2 ? round : lot >> 32, lot >> 24);
  return make_legal(p, declaration);
}

ATTEST_REQUIREMENT(
    long_needle, {
                     .id = "LONG-NEEDLE",
                     .sentence = "among up to 131,072 keys each one counts once where it is seen, "
                                 "and not at all where it is hidden",
                     .draw = draw_long,
                     .check = check_outputs,
                     .share = 3,
                     .of_decode = "CACHE-NEEDLE",
                 });

}  // namespace
}  // namespace attest
