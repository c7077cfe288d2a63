// SPDX-License-Identifier: Apache-2.0
#include "harness/draw_features.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "attest/sequences.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"

namespace attest {
namespace {

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

void pack(Dice& dice, AttentionProblem& p) {
  const std::int64_t segments = dice.between(1, 4);
  p.batch = 1;
  for (auto* list : {&p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k}) list->clear();
  p.cu_seqlens_q = draw_cuts(dice, segments, p.q_len);
  p.cu_seqlens_k =
      dice.one_in(3) && p.q_len == p.kv_len ? p.cu_seqlens_q : draw_cuts(dice, segments, p.kv_len);
}

void draw_ranges(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (declaration.has(Feature::packed) && dice.one_in(7)) return pack(dice, p);
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

void set_global_tokens(Dice& dice, AttentionProblem& p) {
  p.global_tokens = dice.pick<std::int64_t>({1, 2, dice.between(1, p.kv_len + 2)});
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
    set_global_tokens(dice, p);
}

void set_prefix(Dice& dice, AttentionProblem& p) {
  p.base = Base::prefix;
  p.prefix_len = draw_list(dice, num_sequences(p), p.kv_len + 2);
}

void set_offsets(Dice& dice, AttentionProblem& p) {
  p.align = Align::q_offset;
  p.q_offset.clear();
  for (std::int64_t b = 0; b < num_sequences(p); ++b)
    p.q_offset.push_back(dice.pick<std::int64_t>({0, p.kv_len - p.q_len, dice.between(0, p.kv_len),
                                                  p.kv_len + 3, -dice.between(0, p.q_len), 1000}));
}

void draw_align(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  std::vector<Align> declared;
  if (declaration.has(Feature::align_bottom_right)) declared.push_back(Align::bottom_right);
  if (declaration.has(Feature::align_top_left)) declared.push_back(Align::top_left);
  if (declaration.has(Feature::align_q_offset)) declared.push_back(Align::q_offset);
  if (p.base == Base::prefix) set_prefix(dice, p);
  if (declared.empty() || !uses_query_positions(p)) return;
  p.align = declared[static_cast<std::size_t>(dice.below(std::ssize(declared)))];
  if (p.align == Align::q_offset) set_offsets(dice, p);
}

Axes draw_axes(Dice& dice) {
  return {!dice.one_in(3), !dice.one_in(3), !dice.one_in(4), !dice.one_in(4)};
}

void set_mask(Dice& dice, AttentionProblem& p) {
  p.mask = static_cast<MaskKind>(dice.between(1, static_cast<int>(MaskKind::list) - 1));
  p.mask_axes = draw_axes(dice);
}

void set_blocks(Dice& dice, AttentionProblem& p) {
  p.blocks = true;
  p.block_axes = {!dice.one_in(3), !dice.one_in(3), true, true};
  p.block_q = dice.pick<std::int64_t>({1, 2, 3, 4, 8, 16, 64});
  p.block_k = dice.pick<std::int64_t>({1, 2, 3, 4, 8, 16, 64});
}

void draw_masks(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (declaration.has(Feature::mask) && dice.one_in(6)) set_mask(dice, p);
  if (declaration.has(Feature::blocks) && dice.one_in(8)) set_blocks(dice, p);
}

void set_bias(Dice& dice, BiasKind kind, AttentionProblem& p) {
  p.bias = kind;
  p.bias_axes = draw_axes(dice);
  if (p.bias != BiasKind::t5) return;
  p.t5_bidirectional = dice.one_in(2);
  p.t5_buckets = dice.pick<std::int64_t>({32, 32, 4, 7, 8, 16});
  p.t5_max_distance = dice.pick<std::int64_t>({128, 128, 20, 9, 64});
}

void draw_bias(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  if (!declaration.has(Feature::bias) || !dice.one_in(5)) return;
  set_bias(dice, dice.pick({BiasKind::normal, BiasKind::neg_inf, BiasKind::lowest, BiasKind::t5}),
           p);
}

double draw_softcap(Dice& dice) { return dice.pick({0.5, 1.0, 5.0, 20.0, 50.0}); }
double draw_scale(Dice& dice, const AttentionProblem& p) {
  return dice.pick({1.0, 0.5, 0.3, 0.0625, 2.0, 1.0 / static_cast<double>(p.head_dim)});
}
SinkKind draw_sink(Dice& dice) {
  return dice.pick({SinkKind::normal, SinkKind::mixed_inf, SinkKind::large});
}
double draw_dropout(Dice& dice) { return dice.pick({0.1, 0.5, 0.9, 0.25}); }

void set_alibi(Dice& dice, AlibiKind kind, AttentionProblem& p) {
  p.alibi = kind;
  p.slopes = dice.pick({SlopesKind::standard, SlopesKind::random, SlopesKind::per_batch});
}

void draw_scores(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  const auto on = [&](Feature feature) { return declaration.has(feature) && dice.one_in(6); };
  if (on(Feature::softcap)) p.softcap = draw_softcap(dice);
  if (!p.scale && on(Feature::scale)) p.scale = draw_scale(dice, p);
  if (declaration.has(Feature::scale_nonpositive) && dice.one_in(20))
    p.scale = dice.pick({0.0, -0.5, -1.0, -0.1});
  if (on(Feature::sink)) p.sink = draw_sink(dice);
  if (on(Feature::dropout)) p.dropout_p = draw_dropout(dice);

  std::vector<AlibiKind> kinds;
  if (declaration.has(Feature::alibi_absolute)) kinds.push_back(AlibiKind::absolute);
  if (declaration.has(Feature::alibi_signed)) kinds.push_back(AlibiKind::signed_);
  if (declaration.has(Feature::alibi_key_anchored)) kinds.push_back(AlibiKind::key_anchored);
  if (!kinds.empty() && dice.one_in(5)) {
    set_alibi(dice, kinds[static_cast<std::size_t>(dice.below(std::ssize(kinds)))], p);
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

std::int64_t draw_channels(Dice& dice) {
  const std::int64_t lot = dice.below(20);
  if (lot < 12) return dice.between(1, 5);
  if (lot < 15) return dice.pick<std::int64_t>({1, 2, 4, 8, 16, 32, 64});
  if (lot < 18)
    return dice.pick<std::int64_t>({7, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 128, 129, 130});
  return dice.between(1, 64);
}

std::int64_t draw_member(Dice& dice, const DimSet& set) {
  if (set.empty()) return draw_channels(dice);
  const DimRange& range = set[static_cast<std::size_t>(dice.below(std::ssize(set)))];
  const std::int64_t step = std::max<std::int64_t>(range.step, 1);
  const std::int64_t last =
      std::min<std::int64_t>(range.last, std::max<std::int64_t>(256, range.first));
  return range.first + step * dice.below((last - range.first) / step + 1);
}

void draw_features(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  draw_ranges(dice, declaration, p);
  draw_base(dice, declaration, p);
  draw_masks(dice, declaration, p);
  draw_bias(dice, declaration, p);
  draw_scores(dice, declaration, p);
  draw_rope(dice, declaration, p);
  draw_align(dice, declaration, p);
  draw_layout(dice, declaration, p);
  draw_empty_dim(dice, declaration, p);
}

void turn_on(Dice& dice, const Declaration& declaration, Feature feature, AttentionProblem& p) {
  const std::int64_t length = std::max(p.q_len, p.kv_len);
  const auto unpack = [&p] {
    p.cu_seqlens_q.clear();
    p.cu_seqlens_k.clear();
  };
  switch (feature) {
    case Feature::gqa:
      p.num_kv_heads = std::min<std::int64_t>(p.num_kv_heads, 4);
      p.num_heads = p.num_kv_heads * dice.between(2, 8 / p.num_kv_heads);
      break;
    case Feature::v_head_dim:
      if (declaration.v_head_dims) p.v_head_dim = draw_member(dice, *declaration.v_head_dims);
      if (p.v_head_dim == p.head_dim) ++p.v_head_dim;
      break;
    case Feature::prefix: set_prefix(dice, p); break;
    case Feature::align_q_offset:
      add_feature(p, feature);
      set_offsets(dice, p);
      break;
    case Feature::window_left: p.window_left = window_bound(dice, length); break;
    case Feature::window_right: p.window_right = window_bound(dice, length); break;
    case Feature::global_tokens:
      if (p.window_left < 0 && p.window_right < 0)
        (declaration.has(Feature::window_left) ? p.window_left : p.window_right) =
            window_bound(dice, length);
      set_global_tokens(dice, p);
      break;
    case Feature::seqlens_q:
      unpack();
      p.seqlens_q = draw_list(dice, p.batch, p.q_len);
      break;
    case Feature::seqlens_k:
      unpack();
      p.seqlens_k = draw_list(dice, p.batch, p.kv_len);
      break;
    case Feature::left_pad_q:
      unpack();
      p.left_pad_q = draw_list(dice, p.batch, p.q_len / 2);
      break;
    case Feature::left_pad_k:
      unpack();
      p.left_pad_k = draw_list(dice, p.batch, p.kv_len / 2);
      break;
    case Feature::packed: pack(dice, p); break;
    case Feature::mask: set_mask(dice, p); break;
    case Feature::blocks: set_blocks(dice, p); break;
    case Feature::bias:
      set_bias(dice, dice.pick({BiasKind::normal, BiasKind::lowest, BiasKind::t5}), p);
      break;
    case Feature::bias_neg_inf: set_bias(dice, BiasKind::neg_inf, p); break;
    case Feature::alibi_absolute: set_alibi(dice, AlibiKind::absolute, p); break;
    case Feature::alibi_signed: set_alibi(dice, AlibiKind::signed_, p); break;
    case Feature::alibi_key_anchored: set_alibi(dice, AlibiKind::key_anchored, p); break;
    case Feature::scale: p.scale = draw_scale(dice, p); break;
    case Feature::softcap: p.softcap = draw_softcap(dice); break;
    case Feature::sink: p.sink = draw_sink(dice); break;
    case Feature::dropout: p.dropout_p = draw_dropout(dice); break;
    case Feature::empty_dims: *dice.pick({&p.batch, &p.q_len, &p.kv_len, &p.v_head_dim}) = 0; break;
    default: add_feature(p, feature);
  }
}

}  // namespace attest
