// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "attest/sequences.hpp"
#include "harness/dice.hpp"
#include "harness/legal.hpp"

namespace attest {
namespace {

enum class SizeClass : std::uint8_t { small, large, longest };

/// Most (query, key, channel) triples of a problem, by size class.
constexpr std::int64_t kMostTriples[] = {150'000, 4'500'000, 2'200'000};

/// Channels of v that V = identity may ask for.
constexpr std::int64_t kMostIdentity = 130;

std::int64_t triples(const AttentionProblem& p) {
  return p.batch * p.num_heads * p.q_len * p.kv_len * std::max(p.head_dim, p.v_head_dim);
}

/// The sizes around which tiles end.
std::int64_t edge_length(Dice& dice) {
  return dice.pick<std::int64_t>({1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129});
}

std::int64_t small_length(Dice& dice) {
  const std::int64_t lot = dice.below(20);
  if (lot < 11) return dice.between(1, 4);
  if (lot < 16) return dice.between(1, 10);
  if (lot < 19) return edge_length(dice);
  return dice.between(1, 100);
}

std::int64_t channels(Dice& dice) {
  const std::int64_t lot = dice.below(20);
  if (lot < 12) return dice.between(1, 5);
  if (lot < 15) return dice.pick<std::int64_t>({1, 2, 4, 8, 16, 32, 64});
  if (lot < 18)
    return dice.pick<std::int64_t>({7, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 128, 129, 130});
  return dice.between(1, 64);
}

/// Any member of the set up to 256, so that sparse sets ({64, 128}) are seen whole.
std::int64_t member(Dice& dice, const DimSet& set) {
  if (set.empty()) return channels(dice);
  const DimRange& range = set[static_cast<std::size_t>(dice.below(std::ssize(set)))];
  const std::int64_t step = std::max<std::int64_t>(range.step, 1);
  const std::int64_t last =
      std::min<std::int64_t>(range.last, std::max<std::int64_t>(256, range.first));
  return range.first + step * dice.below((last - range.first) / step + 1);
}

void draw_heads(Dice& dice, const Declaration& declaration, SizeClass size, AttentionProblem& p) {
  p.batch = size == SizeClass::small ? dice.pick<std::int64_t>({1, 1, 1, 1, 2, 2, 3})
                                     : dice.pick<std::int64_t>({1, 1, 2});
  p.num_kv_heads = dice.pick<std::int64_t>({1, 1, 1, 1, 1, 2, 2, 3, 4, 9});
  std::int64_t group = 1;
  if (declaration.has(Feature::gqa) && dice.one_in(3))
    group = dice.pick<std::int64_t>({2, 2, 2, 3, 4, 8});
  const std::int64_t most = size == SizeClass::small ? 9 : 4 / p.batch;
  p.num_kv_heads = std::min(p.num_kv_heads, most);
  p.num_heads = p.num_kv_heads * std::min(group, most / p.num_kv_heads);
}

void draw_lengths(Dice& dice, SizeClass size, AttentionProblem& p) {
  switch (size) {
    case SizeClass::small:
      p.q_len = small_length(dice);
      p.kv_len = small_length(dice);
      if (dice.one_in(4)) p.kv_len = p.q_len;
      if (dice.one_in(10)) p.q_len = 1;
      break;
    case SizeClass::large:
      p.q_len =
          dice.one_in(2) ? std::max<std::int64_t>(edge_length(dice), 16) : dice.between(16, 128);
      p.kv_len =
          dice.one_in(2) ? std::max<std::int64_t>(edge_length(dice), 16) : dice.between(16, 128);
      break;
    case SizeClass::longest:
      p.q_len = dice.between(1, 4);
      p.kv_len = dice.one_in(2) ? dice.between(256, 4096)
                                : dice.pick<std::int64_t>({255, 256, 257, 1023, 1025, 2048, 4096});
      break;
  }
}

/// Halves whatever is largest until the problem fits its class.
void keep_within(std::int64_t most, AttentionProblem& p) {
  while (triples(p) > most) {
    if (p.batch > 1) {
      p.batch = 1;
    } else if (p.num_kv_heads > 1) {
      p.num_heads /= p.num_kv_heads;
      p.num_kv_heads = 1;
    } else {
      std::int64_t* largest = std::max({&p.q_len, &p.kv_len, &p.head_dim, &p.v_head_dim},
                                       [](auto* a, auto* b) { return *a < *b; });
      *largest = std::max<std::int64_t>(*largest / 2, 1);
    }
  }
}

bool score_family(Family family) { return family >= Family::saturated && family <= Family::needle; }

void draw_data(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  const auto any_family = [&] {
    return static_cast<Family>(dice.below(static_cast<std::int64_t>(Family::list)));
  };
  p.seed = static_cast<std::uint64_t>(dice.below(1 << 20));
  if (!dice.one_in(3)) p.data = any_family();
  if (dice.one_in(8)) {
    p.v_data = any_family();
    // For v these are the normal numbers that it has anyway.
    if (score_family(*p.v_data) || *p.v_data == p.data) p.v_data.reset();
  }
  if (p.data == Family::huge && declaration.has(Feature::scale) && dice.one_in(2))
    p.scale = 0x1p-11;
  const bool identity = p.v_data.value_or(p.data) == Family::identity_v;
  if (identity && p.v_head_dim < p.kv_len) {
    if (p.kv_len <= kMostIdentity && declaration.v_head_dims &&
        contains(*declaration.v_head_dims, p.kv_len))
      p.v_head_dim = p.kv_len;
    else
      p.kv_len = p.v_head_dim;
  }
}

/// n entries, each of them 0, `most`, or between.
std::vector<std::int64_t> draw_list(Dice& dice, std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t b = 0; b < n; ++b) {
    const std::int64_t lot = dice.below(6);
    list.push_back(lot == 0 ? 0 : lot == 1 ? most : dice.between(0, most));
  }
  return list;
}

std::vector<std::int64_t> draw_cuts(Dice& dice, std::int64_t segments, std::int64_t length) {
  std::vector<std::int64_t> cuts = draw_list(dice, segments, length);
  if (!dice.one_in(4)) cuts.back() = length;  // else the rows after the last segment are padding
  cuts.push_back(0);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

void draw_ranges(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (declaration.has(Feature::packed) && dice.one_in(7)) {
    const std::int64_t segments = dice.between(1, 4);
    p.batch = 1;
    p.cu_seqlens_q = draw_cuts(dice, segments, p.q_len);
    p.cu_seqlens_k = dice.one_in(3) && p.q_len == p.kv_len ? p.cu_seqlens_q
                                                           : draw_cuts(dice, segments, p.kv_len);
    return;
  }
  const auto maybe = [&](Feature feature, std::vector<std::int64_t>& list, std::int64_t most) {
    if (declaration.has(feature) && dice.one_in(7)) list = draw_list(dice, p.batch, most);
  };
  maybe(Feature::seqlens_q, p.seqlens_q, p.q_len);
  maybe(Feature::seqlens_k, p.seqlens_k, p.kv_len);
  maybe(Feature::left_pad_q, p.left_pad_q, p.q_len / 2);
  maybe(Feature::left_pad_k, p.left_pad_k, p.kv_len / 2);
}

std::int64_t window_bound(Dice& dice, std::int64_t length) {
  return dice.pick<std::int64_t>(
      {0, 1, 2, dice.between(0, length), length / 2, length, length + 5});
}

void draw_base(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (declaration.has(Feature::causal) && (!declaration.base_full || dice.one_in(3)))
    p.base = Base::causal;
  if (declaration.has(Feature::prefix) && dice.one_in(8)) p.base = Base::prefix;
  const std::int64_t length = std::max(p.q_len, p.kv_len);
  if (declaration.has(Feature::window_left) && dice.one_in(6))
    p.window_left = window_bound(dice, length);
  if (declaration.has(Feature::window_right) && dice.one_in(6))
    p.window_right = window_bound(dice, length);
  if (declaration.has(Feature::global_tokens) && (p.window_left >= 0 || p.window_right >= 0) &&
      dice.one_in(3))
    p.global_tokens = dice.pick<std::int64_t>({1, 2, dice.between(1, p.kv_len + 2)});
}

void draw_align(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  std::vector<Align> declared;
  if (declaration.has(Feature::align_bottom_right)) declared.push_back(Align::bottom_right);
  if (declaration.has(Feature::align_top_left)) declared.push_back(Align::top_left);
  if (declaration.has(Feature::align_q_offset)) declared.push_back(Align::q_offset);
  const std::int64_t sequences = num_sequences(p);
  if (p.base == Base::prefix) p.prefix_len = draw_list(dice, sequences, p.kv_len + 2);
  if (declared.empty() || !uses_query_positions(p)) return;
  p.align = declared[static_cast<std::size_t>(dice.below(std::ssize(declared)))];
  if (p.align != Align::q_offset) return;
  for (std::int64_t b = 0; b < sequences; ++b)
    p.q_offset.push_back(dice.pick<std::int64_t>({0, p.kv_len - p.q_len, dice.between(0, p.kv_len),
                                                  p.kv_len + 3, -dice.between(0, p.q_len), 1000}));
}

Axes draw_axes(Dice& dice) {
  return {!dice.one_in(3), !dice.one_in(3), !dice.one_in(4), !dice.one_in(4)};
}

void draw_masks(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (declaration.has(Feature::mask) && dice.one_in(6)) {
    p.mask = static_cast<MaskKind>(dice.between(1, static_cast<int>(MaskKind::list) - 1));
    p.mask_axes = draw_axes(dice);
  }
  if (declaration.has(Feature::blocks) && dice.one_in(8)) {
    p.blocks = true;
    p.block_axes = {!dice.one_in(3), !dice.one_in(3), true, true};
    p.block_q = dice.pick<std::int64_t>({1, 2, 3, 4, 8, 16, 64});
    p.block_k = dice.pick<std::int64_t>({1, 2, 3, 4, 8, 16, 64});
  }
}

void draw_bias(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (!declaration.has(Feature::bias) || !dice.one_in(5)) return;
  p.bias = dice.pick({BiasKind::normal, BiasKind::neg_inf, BiasKind::lowest, BiasKind::t5});
  p.bias_axes = draw_axes(dice);
  if (p.bias != BiasKind::t5) return;
  p.t5_bidirectional = dice.one_in(2);
  p.t5_buckets = dice.pick<std::int64_t>({32, 32, 4, 7, 8, 16});
  p.t5_max_distance = dice.pick<std::int64_t>({128, 128, 20, 9, 64});
}

void draw_scores(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  const auto on = [&](Feature feature) { return declaration.has(feature) && dice.one_in(6); };
  if (on(Feature::softcap)) p.softcap = dice.pick({0.5, 1.0, 5.0, 20.0, 50.0});
  if (!p.scale && on(Feature::scale))
    p.scale = dice.pick({1.0, 0.5, 0.3, 0.0625, 2.0, 1.0 / static_cast<double>(p.head_dim)});
  if (declaration.has(Feature::scale_nonpositive) && dice.one_in(20))
    p.scale = dice.pick({0.0, -0.5, -1.0, -0.1});
  if (on(Feature::sink))
    p.sink = dice.pick({SinkKind::normal, SinkKind::mixed_inf, SinkKind::large});
  if (on(Feature::dropout)) p.dropout_p = dice.pick({0.1, 0.5, 0.9, 0.25});

  std::vector<AlibiKind> kinds;
  if (declaration.has(Feature::alibi_absolute)) kinds.push_back(AlibiKind::absolute);
  if (declaration.has(Feature::alibi_signed)) kinds.push_back(AlibiKind::signed_);
  if (declaration.has(Feature::alibi_key_anchored)) kinds.push_back(AlibiKind::key_anchored);
  if (!kinds.empty() && dice.one_in(5)) {
    p.alibi = kinds[static_cast<std::size_t>(dice.below(std::ssize(kinds)))];
    p.slopes = dice.pick({SlopesKind::standard, SlopesKind::random, SlopesKind::per_batch});
    p.alibi_inside_softcap =
        p.softcap > 0 && declaration.has(Feature::alibi_inside_softcap) && dice.one_in(2);
  }
}

void draw_rope(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  std::vector<RopePairing> pairings;
  if (declaration.has(Feature::rope_interleaved)) pairings.push_back(RopePairing::interleaved);
  if (declaration.has(Feature::rope_half)) pairings.push_back(RopePairing::half);
  if (pairings.empty() || p.head_dim < 2 || !dice.one_in(5)) return;
  p.rope = pairings[static_cast<std::size_t>(dice.below(std::ssize(pairings)))];
  p.rope_base = dice.pick({10000.0, 10000.0, 500000.0, 100.0});
  if (declaration.has(Feature::rope_partial) && dice.one_in(3))
    p.rope_dim = 2 * dice.between(1, p.head_dim / 2);
  if (declaration.has(Feature::rope_linear) && dice.one_in(4))
    p.rope_scale = dice.pick({2.0, 4.0, 1.5});
  if (declaration.has(Feature::rope_ntk) && dice.one_in(4)) p.rope_ntk = dice.pick({2.0, 4.0, 8.0});
}

void draw_layout(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  p.want_lse = declaration.has(Feature::lse) && !dice.one_in(6);
  if (declaration.layout_bhld && !dice.one_in(3)) return;
  const std::pair<Feature, Layout> layouts[] = {{Feature::layout_blhd, Layout::blhd},
                                                {Feature::layout_bhdl, Layout::bhdl},
                                                {Feature::layout_strided, Layout::strided},
                                                {Feature::layout_kv_packed, Layout::kv_packed},
                                                {Feature::layout_broadcast, Layout::broadcast}};
  const auto& [feature, layout] = layouts[dice.below(std::ssize(layouts))];
  if (declaration.has(feature)) p.layout = layout;
}

void draw_empty_dim(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (!declaration.has(Feature::empty_dims) || !dice.one_in(40)) return;
  *dice.pick({&p.batch, &p.q_len, &p.kv_len, &p.v_head_dim}) = 0;
}

}  // namespace

AttentionProblem draw(const Declaration& declaration, std::uint64_t seed, std::string_view stream,
                      std::uint64_t index) {
  Dice dice(seed, stream, index);
  AttentionProblem p;
  if (!declaration.dtypes.empty())
    p.dtype =
        declaration.dtypes[static_cast<std::size_t>(dice.below(std::ssize(declaration.dtypes)))];

  const std::int64_t lot = dice.below(100);
  const SizeClass size = lot == 0  ? SizeClass::longest
                         : lot < 6 ? SizeClass::large
                                   : SizeClass::small;
  draw_heads(dice, declaration, size, p);
  draw_lengths(dice, size, p);
  p.head_dim = dice.one_in(8) ? member(dice, declaration.head_dims) : channels(dice);
  p.v_head_dim = p.head_dim;
  if (declaration.v_head_dims && dice.one_in(4))
    p.v_head_dim = dice.one_in(8) ? member(dice, *declaration.v_head_dims) : channels(dice);
  draw_data(dice, declaration, p);
  keep_within(kMostTriples[static_cast<int>(size)], p);

  draw_ranges(dice, declaration, p);
  draw_base(dice, declaration, p);
  draw_masks(dice, declaration, p);
  draw_bias(dice, declaration, p);
  draw_scores(dice, declaration, p);
  draw_rope(dice, declaration, p);
  draw_align(dice, declaration, p);
  draw_layout(dice, declaration, p);
  draw_empty_dim(dice, declaration, p);
  return make_legal(std::move(p), declaration);
}

}  // namespace attest
