// SPDX-License-Identifier: Apache-2.0
// Which features a problem uses, and whether a declaration covers them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "attest/declaration.hpp"
#include "attest/names.hpp"
#include "attest/sequences.hpp"

namespace attest {
namespace {

constexpr std::array<std::string_view, kNumFeatures> kFeatureNames{
    "gqa",
    "v_head_dim",
    "causal",
    "prefix",
    "align_top_left",
    "align_bottom_right",
    "align_q_offset",
    "window_left",
    "window_right",
    "global_tokens",
    "seqlens_q",
    "seqlens_k",
    "left_pad_q",
    "left_pad_k",
    "packed",
    "mask",
    "blocks",
    "bias",
    "bias_neg_inf",
    "alibi_absolute",
    "alibi_signed",
    "alibi_key_anchored",
    "alibi_inside_softcap",
    "rope_interleaved",
    "rope_half",
    "rope_partial",
    "rope_linear",
    "rope_ntk",
    "scale",
    "scale_nonpositive",
    "softcap",
    "sink",
    "dropout",
    "lse",
    "layout_blhd",
    "layout_bhdl",
    "layout_strided",
    "layout_kv_packed",
    "layout_broadcast",
    "empty_dims",
};

/// Top-left and bottom-right are the same function where every sequence has as many query rows as
/// key rows. A sequence without queries or without keys has nothing to align.
bool alignments_differ(const AttentionProblem& problem) {
  for (const SequenceRows& rows : sequence_rows(problem)) {
    const std::int64_t queries = saturating_subtract(rows.q1, rows.q0);
    const std::int64_t keys = saturating_subtract(rows.k1, rows.k0);
    if (queries > 0 && keys > 0 && queries != keys) return true;
  }
  return false;
}

/// What a rotary embedding alone can use: positions of its rows are no feature of it.
bool concerns_rope(Feature feature) {
  return (feature >= Feature::rope_interleaved && feature <= Feature::rope_ntk) ||
         feature >= Feature::layout_blhd;
}

bool uses(const AttentionProblem& p, Feature feature) {
  if (p.operation == Operation::rope && !concerns_rope(feature)) return false;
  const bool rope = p.rope != RopePairing::none;
  switch (feature) {
    case Feature::gqa: return p.num_kv_heads != p.num_heads;
    case Feature::v_head_dim: return p.v_head_dim != p.head_dim;
    case Feature::causal: return p.base == Base::causal;
    case Feature::prefix: return p.base == Base::prefix;
    case Feature::align_top_left:
      return p.align == Align::top_left && uses_query_positions(p) && alignments_differ(p);
    case Feature::align_bottom_right:
      // New rows stand behind the cached ones: there is nothing to choose.
      return p.operation != Operation::decode && p.align == Align::bottom_right &&
             uses_query_positions(p) && alignments_differ(p);
    case Feature::align_q_offset: return p.align == Align::q_offset && uses_query_positions(p);
    case Feature::window_left: return p.window_left >= 0;
    case Feature::window_right: return p.window_right >= 0;
    case Feature::global_tokens: return p.global_tokens > 0;
    case Feature::seqlens_q: return !p.seqlens_q.empty();
    // Every cache has lengths of its own.
    case Feature::seqlens_k: return p.operation != Operation::decode && !p.seqlens_k.empty();
    case Feature::left_pad_q: return !p.left_pad_q.empty();
    case Feature::left_pad_k: return !p.left_pad_k.empty();
    case Feature::packed: return !p.cu_seqlens_q.empty();
    case Feature::mask: return p.mask != MaskKind::none;
    case Feature::blocks: return p.blocks;
    case Feature::bias: return p.bias != BiasKind::none;
    case Feature::bias_neg_inf:
      return p.bias == BiasKind::neg_inf ||
             std::count(p.literal.bias.begin(), p.literal.bias.end(),
                        -std::numeric_limits<double>::infinity()) > 0;
    case Feature::alibi_absolute: return p.alibi == AlibiKind::absolute;
    case Feature::alibi_signed: return p.alibi == AlibiKind::signed_;
    case Feature::alibi_key_anchored: return p.alibi == AlibiKind::key_anchored;
    case Feature::alibi_inside_softcap: return p.alibi_inside_softcap;
    case Feature::rope_interleaved: return p.rope == RopePairing::interleaved;
    case Feature::rope_half: return p.rope == RopePairing::half;
    case Feature::rope_partial: return rope && effective_rope_dim(p) < p.head_dim;
    case Feature::rope_linear: return rope && p.rope_scale != 1;
    case Feature::rope_ntk: return rope && p.rope_ntk != 1;
    case Feature::scale: {
      AttentionProblem plain;
      plain.head_dim = p.head_dim;
      return p.scale && *p.scale != effective_scale(plain);
    }
    case Feature::scale_nonpositive: return p.scale && *p.scale <= 0;
    case Feature::softcap: return p.softcap > 0;
    case Feature::sink: return p.sink != SinkKind::none;
    case Feature::dropout: return p.dropout_p > 0;
    case Feature::lse: return p.want_lse;
    case Feature::layout_blhd: return p.layout == Layout::blhd;
    case Feature::layout_bhdl: return p.layout == Layout::bhdl;
    case Feature::layout_strided: return p.layout == Layout::strided || p.layout == Layout::far;
    case Feature::layout_kv_packed: return p.layout == Layout::kv_packed;
    case Feature::layout_broadcast: return p.layout == Layout::broadcast;
    case Feature::empty_dims:
      return p.batch == 0 || p.q_len == 0 || p.kv_len == 0 || p.v_head_dim == 0;
  }
  return false;
}

std::optional<std::string> cache_not_declared(const CacheScope& scope,
                                              const AttentionProblem& problem) {
  if (!scope.serves(problem.cache)) return fmt::format("cache {}", enum_name(problem.cache));
  if (problem.cache == CacheKind::paged && !contains(scope.page_sizes, problem.page_size))
    return fmt::format("page_size {}", problem.page_size);
  if (problem.rope != RopePairing::none && !(problem.cache_rotated ? scope.rotated : scope.raw))
    return problem.cache_rotated ? "a cache of rotated keys" : "a cache of keys before RoPE";
  if (problem.num_splits > 0 && !scope.splits) return "splits";
  return std::nullopt;
}

}  // namespace

std::string_view name(Feature feature) {
  const auto index = static_cast<std::size_t>(feature);
  return index < kFeatureNames.size() ? kFeatureNames[index] : "?";
}

std::optional<Feature> parse_feature(std::string_view text) {
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (kFeatureNames[i] == text) return static_cast<Feature>(i);
  return std::nullopt;
}

std::vector<Feature> features_of(const AttentionProblem& problem) {
  std::vector<Feature> features;
  for (int i = 0; i < kNumFeatures; ++i)
    if (uses(problem, static_cast<Feature>(i))) features.push_back(static_cast<Feature>(i));
  return features;
}

bool contains(const DimSet& set, std::int64_t value) {
  return std::any_of(set.begin(), set.end(), [value](const DimRange& range) {
    return value >= range.first && value <= range.last &&
           (range.step <= 1 || (value - range.first) % range.step == 0);
  });
}

bool Declaration::has(DType dtype) const {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

bool serves_layout(const Declaration& declaration, Layout layout) {
  AttentionProblem plain;
  plain.layout = layout;
  plain.want_lse = false;
  if (layout == Layout::bhld) return declaration.layout_bhld;
  const std::vector<Feature> needed = features_of(plain);
  return std::all_of(needed.begin(), needed.end(),
                     [&](Feature feature) { return declaration.has(feature); });
}

std::optional<std::string> not_declared(const Declaration& declaration,
                                        const AttentionProblem& problem) {
  if (!declaration.has(problem.dtype)) return fmt::format("dtype {}", enum_name(problem.dtype));
  const bool is_rope = problem.operation == Operation::rope;
  if (is_rope && !declaration.rope.served) return "component rope";
  if (problem.rope_inverse && !declaration.rope.inverse) return "component rope_inverse";
  if (!is_rope && problem.base == Base::full && !declaration.base_full) return "base full";
  if (problem.layout == Layout::bhld && !declaration.layout_bhld) return "layout bhld";
  if (problem.operation == Operation::backward) {
    const BackwardScope& backward = declaration.backward;
    if (!backward.served) return "backward";
    if (wants_gradient(problem, Gradient::bias) && !backward.bias) return "the gradient of bias";
    if (wants_gradient(problem, Gradient::slopes) && !backward.slopes)
      return "the gradient of ALiBi slopes";
    if (wants_gradient(problem, Gradient::sink) && !backward.sink) return "the gradient of sink";
    if (problem.d_lse && !backward.lse) return "a gradient of lse";
    if (problem.d_o_layout && !serves_layout(declaration, *problem.d_o_layout))
      return fmt::format("layout {} of dO", enum_name(*problem.d_o_layout));
  }
  if (problem.operation == Operation::decode)
    if (auto missing = cache_not_declared(declaration.cache, problem)) return missing;
  if (problem.operation == Operation::forward && !declaration.forward) return "forward";
  for (Feature feature : features_of(problem))
    if (!declaration.has(feature)) return fmt::format("feature {}", name(feature));
  if (!contains(declaration.head_dims, problem.head_dim))
    return fmt::format("head_dim {}", problem.head_dim);
  const bool v_served = declaration.v_head_dims
                            ? contains(*declaration.v_head_dims, problem.v_head_dim)
                            : problem.v_head_dim == problem.head_dim;
  if (!is_rope && !v_served && problem.v_head_dim != 0)  // 0 is a matter of empty_dims
    return fmt::format("v_head_dim {}", problem.v_head_dim);
  if (declaration.max_q_len > 0 && problem.q_len > declaration.max_q_len)
    return fmt::format("q_len {}", problem.q_len);
  if (declaration.max_kv_len > 0 && problem.kv_len > declaration.max_kv_len)
    return fmt::format("kv_len {}", problem.kv_len);
  return std::nullopt;
}

}  // namespace attest
