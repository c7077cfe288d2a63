// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "harness/generate.hpp"
#include "harness/legal.hpp"

namespace attest {
namespace {

/// The member of the set nearest to `value`; `value` itself where the set is empty.
std::int64_t nearest(const DimSet& set, std::int64_t value) {
  std::int64_t best = value;
  std::uint64_t distance = ~std::uint64_t{0};
  for (const DimRange& range : set) {
    const std::int64_t step = std::max<std::int64_t>(range.step, 1);
    const std::int64_t inside = std::clamp(value, range.first, range.last);
    const std::int64_t below = inside - (inside - range.first) % step;
    for (const std::int64_t member : {below, below + step}) {
      if (member > range.last) continue;
      const auto away = static_cast<std::uint64_t>(std::abs(member - value));
      if (away < distance) {
        distance = away;
        best = member;
      }
    }
  }
  return best;
}

void fit_dims(AttentionProblem& p, const Declaration& declaration) {
  if (!declaration.has(p.dtype) && !declaration.dtypes.empty())
    p.dtype = declaration.dtypes.front();
  p.head_dim = nearest(declaration.head_dims, p.head_dim);
  const bool no_values = p.v_head_dim == 0 && declaration.has(Feature::empty_dims);
  if (!declaration.v_head_dims)
    p.v_head_dim = p.head_dim;
  else if (!no_values)
    p.v_head_dim = nearest(*declaration.v_head_dims, p.v_head_dim);
  if (declaration.max_q_len > 0) p.q_len = std::min(p.q_len, declaration.max_q_len);
  if (declaration.max_kv_len > 0) p.kv_len = std::min(p.kv_len, declaration.max_kv_len);
}

constexpr std::pair<Feature, Layout> kLayouts[] = {{Feature::layout_blhd, Layout::blhd},
                                                   {Feature::layout_bhdl, Layout::bhdl},
                                                   {Feature::layout_strided, Layout::strided},
                                                   {Feature::layout_kv_packed, Layout::kv_packed},
                                                   {Feature::layout_broadcast, Layout::broadcast}};

Layout simplest_layout(const Declaration& declaration) {
  if (!declaration.layout_bhld)
    for (const auto& [feature, layout] : kLayouts)
      if (declaration.has(feature)) return layout;
  return Layout::bhld;
}

Base simplest_base(const Declaration& declaration) {
  if (declaration.base_full) return Base::full;
  if (declaration.has(Feature::causal)) return Base::causal;
  return declaration.has(Feature::prefix) ? Base::prefix : Base::full;
}

/// Another declared alignment; where there is none, sequences whose alignments all agree.
void realign(AttentionProblem& p, const Declaration& declaration) {
  if (declaration.has(Feature::align_bottom_right)) {
    p.align = Align::bottom_right;
  } else if (declaration.has(Feature::align_top_left)) {
    p.align = Align::top_left;
  } else if (declaration.has(Feature::align_q_offset)) {
    p.align = Align::q_offset;
  } else {
    p.align = Align::bottom_right;
    for (auto* list : {&p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k, &p.cu_seqlens_q,
                       &p.cu_seqlens_k})
      list->clear();
    p.q_len = p.kv_len = std::max<std::int64_t>(std::min(p.q_len, p.kv_len), 1);
  }
}

void take_away(AttentionProblem& p, Feature feature, const Declaration& declaration) {
  switch (feature) {
    case Feature::gqa: p.num_kv_heads = p.num_heads; break;
    case Feature::v_head_dim: p.v_head_dim = p.head_dim; break;
    case Feature::causal: p.base = simplest_base(declaration); break;
    case Feature::prefix:
      p.base = declaration.has(Feature::causal) ? Base::causal : Base::full;
      break;
    case Feature::align_top_left:
    case Feature::align_bottom_right:
    case Feature::align_q_offset: realign(p, declaration); break;
    case Feature::window_left:
      // A ring that has turned holds what a window shows.
      if (p.cache == CacheKind::ring) p.cache_rows = 0;
      p.window_left = -1;
      break;
    case Feature::window_right: p.window_right = -1; break;
    case Feature::global_tokens: p.global_tokens = 0; break;
    case Feature::seqlens_q:
      // New rows that are fewer than q_len for some sequence only.
      if (p.operation == Operation::decode) p.seqlens_k.clear();
      p.seqlens_q.clear();
      break;
    case Feature::seqlens_k: p.seqlens_k.clear(); break;
    case Feature::left_pad_q: p.left_pad_q.clear(); break;
    case Feature::left_pad_k: p.left_pad_k.clear(); break;
    case Feature::packed:
      p.cu_seqlens_q.clear();
      p.cu_seqlens_k.clear();
      break;
    case Feature::mask: p.mask = MaskKind::none; break;
    case Feature::blocks: p.blocks = false; break;
    case Feature::bias: p.bias = BiasKind::none; break;
    case Feature::bias_neg_inf: p.bias = BiasKind::normal; break;
    case Feature::alibi_absolute:
    case Feature::alibi_signed:
    case Feature::alibi_key_anchored: p.alibi = AlibiKind::none; break;
    case Feature::alibi_inside_softcap: p.alibi_inside_softcap = false; break;
    case Feature::rope_interleaved:
    case Feature::rope_half: p.rope = RopePairing::none; break;
    case Feature::rope_partial:
      if (p.rope_dim == 0) p.rope = RopePairing::none;  // an odd head_dim
      p.rope_dim = 0;
      break;
    case Feature::rope_linear: p.rope_scale = 1; break;
    case Feature::rope_ntk: p.rope_ntk = 1; break;
    case Feature::scale:
    case Feature::scale_nonpositive: p.scale.reset(); break;
    case Feature::softcap: p.softcap = 0; break;
    case Feature::sink: p.sink = SinkKind::none; break;
    case Feature::dropout: p.dropout_p = 0; break;
    case Feature::lse: p.want_lse = false; break;
    case Feature::layout_blhd:
    case Feature::layout_bhdl:
    case Feature::layout_strided:
    case Feature::layout_kv_packed:
    case Feature::layout_broadcast: p.layout = simplest_layout(declaration); break;
    case Feature::empty_dims:
      for (auto* extent : {&p.batch, &p.q_len, &p.kv_len, &p.v_head_dim})
        *extent = std::max<std::int64_t>(*extent, 1);
      break;
  }
}

void fit_backward(AttentionProblem& p, const Declaration& declaration) {
  const BackwardScope& backward = declaration.backward;
  if (p.operation != Operation::backward) return;
  if (!backward.served) {
    p = forward_of(std::move(p));
    return;
  }
  const auto leave_out = [&p](Gradient gradient, bool served) {
    if (!served && wants_gradient(p, gradient))
      p.no_gradient[static_cast<std::size_t>(gradient)] = true;
  };
  leave_out(Gradient::bias, backward.bias);
  leave_out(Gradient::slopes, backward.slopes);
  leave_out(Gradient::sink, backward.sink);
  if (!backward.lse) p.d_lse = false;
  if (p.d_o_layout && !serves_layout(declaration, *p.d_o_layout)) p.d_o_layout.reset();
}

/// Another declared kind of cache, page size, form of keys.
void fit_decode(AttentionProblem& p, const Declaration& declaration) {
  const CacheScope& cache = declaration.cache;
  if (p.operation == Operation::forward && !declaration.forward && cache.served())
    p.operation = Operation::decode;
  if (p.operation != Operation::decode) return;
  if (!cache.served()) {
    p = forward_of(std::move(p));
    return;
  }
  if (!cache.serves(p.cache))
    for (const CacheKind kind : {CacheKind::paged, CacheKind::ring, CacheKind::contiguous})
      if (cache.serves(kind)) p.cache = kind;
  if (p.cache == CacheKind::paged) p.page_size = nearest(cache.page_sizes, p.page_size);
  if (p.rope != RopePairing::none && !(p.cache_rotated ? cache.rotated : cache.raw))
    p.cache_rotated = !p.cache_rotated;
  if (!cache.splits) p.num_splits = 0;
  if (p.layout != Layout::bhld && !serves_layout(declaration, p.layout))
    p.layout = simplest_layout(declaration);
}

/// The rotary embedding where the kernel has nothing else, a declared pairing, and channels that
/// can be turned.
void fit_rope(AttentionProblem& p, const Declaration& declaration) {
  if (p.operation == Operation::forward && !declaration.forward && !declaration.cache.served())
    p.operation = Operation::rope;
  if (p.operation != Operation::rope) return;
  if (!declaration.rope.served) {
    p = forward_of(std::move(p));
    return;
  }
  if (!declaration.rope.inverse) p.rope_inverse = false;
  const bool half = declaration.has(Feature::rope_half);
  if (!half || (p.rope != RopePairing::half && !declaration.has(Feature::rope_interleaved)))
    p.rope = half ? RopePairing::half : RopePairing::interleaved;
  if (!declaration.has(Feature::rope_partial)) p.rope_dim = 0;
  const auto turns = [&](std::int64_t dim) {
    return dim >= 2 && contains(declaration.head_dims, dim) &&
           (dim % 2 == 0 || declaration.has(Feature::rope_partial));
  };
  constexpr std::int64_t kFar = 4096;
  for (std::int64_t off = 0; off < kFar && !turns(p.head_dim); ++off)
    for (const std::int64_t dim : {p.head_dim + off, p.head_dim - off})
      if (turns(dim)) p.head_dim = dim;
}

AttentionProblem fitted(AttentionProblem problem, const Declaration& declaration) {
  problem.empty_output = declaration.empty_output;
  problem.empty_lse = declaration.empty_lse;
  if (problem.base == Base::full) problem.base = simplest_base(declaration);
  if (problem.layout == Layout::bhld) problem.layout = simplest_layout(declaration);
  fit_dims(problem, declaration);
  fit_backward(problem, declaration);
  fit_rope(problem, declaration);
  fit_decode(problem, declaration);
  return mend(std::move(problem));
}

}  // namespace

AttentionProblem make_legal(AttentionProblem problem, const Declaration& declaration) {
  problem = fitted(mend(std::move(problem)), declaration);
  // Every round takes one feature away; mending may bring at most a simpler one.
  for (int round = 0; round < 3 * kNumFeatures; ++round) {
    const std::vector<Feature> used = features_of(problem);
    const auto undeclared = std::find_if(
        used.begin(), used.end(), [&](Feature feature) { return !declaration.has(feature); });
    if (undeclared == used.end()) break;
    take_away(problem, *undeclared, declaration);
    problem = fitted(std::move(problem), declaration);
  }
  if (!not_declared(declaration, problem)) return problem;
  AttentionProblem plain;
  plain.operation = problem.operation;
  plain.want_lse = declaration.has(Feature::lse);
  plain.seed = problem.seed;
  return fitted(std::move(plain), declaration);
}

}  // namespace attest
