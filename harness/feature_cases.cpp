// SPDX-License-Identifier: Apache-2.0
#include "harness/feature_cases.hpp"

#include <algorithm>

namespace attest {
namespace {

std::vector<std::int64_t> per_sequence(const AttentionProblem& problem, std::int64_t value) {
  return std::vector<std::int64_t>(
      static_cast<std::size_t>(std::max<std::int64_t>(problem.batch, 1)), value);
}

/// Makes the answer depend on where the queries stand: unequal lengths, and causal where nothing
/// else is positional.
void use_positions(AttentionProblem& problem) {
  if (problem.base == Base::full) problem.base = Base::causal;
  if (problem.q_len == problem.kv_len) problem.kv_len += 2;
}

void use_rope(AttentionProblem& problem) {
  if (problem.rope == RopePairing::none) problem.rope = RopePairing::half;
  problem.head_dim = std::max<std::int64_t>(problem.head_dim + problem.head_dim % 2, 4);
  problem.rope_dim = 0;
}

}  // namespace

const Declaration& everything() {
  static const Declaration all = *parse_declaration(
      "dtype=f64,f32,f16,bf16 head_dim=1..4096 v_head_dim=0..4096 features=all layout=any "
      "backward=all cache=contiguous,ring,paged cache_keys=raw,rotated splits "
      "component=rope,rope_inverse");
  return all;
}

void add_feature(AttentionProblem& problem, Feature feature) {
  switch (feature) {
    case Feature::gqa: problem.num_heads = 2 * problem.num_kv_heads; break;
    case Feature::v_head_dim: problem.v_head_dim = problem.head_dim + 1; break;
    case Feature::causal: problem.base = Base::causal; break;
    case Feature::prefix:
      problem.base = Base::prefix;
      problem.prefix_len = per_sequence(problem, 1);
      break;
    case Feature::align_top_left:
      use_positions(problem);
      problem.align = Align::top_left;
      problem.q_offset.clear();
      break;
    case Feature::align_bottom_right:
      use_positions(problem);
      problem.align = Align::bottom_right;
      problem.q_offset.clear();
      break;
    case Feature::align_q_offset:
      use_positions(problem);
      problem.align = Align::q_offset;
      problem.q_offset = per_sequence(problem, 1);
      break;
    case Feature::window_left: problem.window_left = 1; break;
    case Feature::window_right: problem.window_right = 1; break;
    case Feature::global_tokens:
      problem.window_left = 0;
      problem.global_tokens = 1;
      break;
    case Feature::seqlens_q: problem.seqlens_q = per_sequence(problem, problem.q_len / 2); break;
    case Feature::seqlens_k: problem.seqlens_k = per_sequence(problem, problem.kv_len / 2); break;
    case Feature::left_pad_q: problem.left_pad_q = per_sequence(problem, problem.q_len / 2); break;
    case Feature::left_pad_k: problem.left_pad_k = per_sequence(problem, problem.kv_len / 2); break;
    case Feature::packed:
      problem.batch = 1;
      problem.seqlens_q.clear();
      problem.seqlens_k.clear();
      problem.left_pad_q.clear();
      problem.left_pad_k.clear();
      problem.cu_seqlens_q = {0, problem.q_len / 2, problem.q_len};
      problem.cu_seqlens_k = {0, problem.kv_len / 2, problem.kv_len};
      break;
    case Feature::mask: problem.mask = MaskKind::random; break;
    case Feature::blocks:
      problem.blocks = true;
      problem.block_q = problem.block_k = 2;
      break;
    case Feature::bias: problem.bias = BiasKind::normal; break;
    case Feature::bias_neg_inf: problem.bias = BiasKind::neg_inf; break;
    case Feature::alibi_absolute: problem.alibi = AlibiKind::absolute; break;
    case Feature::alibi_signed: problem.alibi = AlibiKind::signed_; break;
    case Feature::alibi_key_anchored: problem.alibi = AlibiKind::key_anchored; break;
    case Feature::alibi_inside_softcap:
      problem.alibi = AlibiKind::signed_;
      problem.softcap = 2;
      problem.alibi_inside_softcap = true;
      break;
    case Feature::rope_interleaved:
      use_rope(problem);
      problem.rope = RopePairing::interleaved;
      break;
    case Feature::rope_half:
      use_rope(problem);
      problem.rope = RopePairing::half;
      break;
    case Feature::rope_partial:
      use_rope(problem);
      problem.rope_dim = 2;
      break;
    case Feature::rope_linear:
      use_rope(problem);
      problem.rope_scale = 2;
      break;
    case Feature::rope_ntk:
      use_rope(problem);
      problem.rope_ntk = 2;
      break;
    case Feature::scale: problem.scale = 0.75; break;
    case Feature::scale_nonpositive: problem.scale = -0.75; break;
    case Feature::softcap: problem.softcap = 2; break;
    case Feature::sink: problem.sink = SinkKind::normal; break;
    case Feature::dropout: problem.dropout_p = 0.5; break;
    case Feature::lse: problem.want_lse = true; break;
    case Feature::layout_blhd: problem.layout = Layout::blhd; break;
    case Feature::layout_bhdl: problem.layout = Layout::bhdl; break;
    case Feature::layout_strided: problem.layout = Layout::strided; break;
    case Feature::layout_kv_packed: problem.layout = Layout::kv_packed; break;
    case Feature::layout_broadcast:
      problem.layout = Layout::broadcast;
      problem.batch = std::max<std::int64_t>(problem.batch, 2);
      break;
    case Feature::empty_dims: problem.kv_len = 0; break;
  }
}

}  // namespace attest
