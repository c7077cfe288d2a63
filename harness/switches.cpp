// SPDX-License-Identifier: Apache-2.0
#include "harness/switches.hpp"

#include <algorithm>

namespace attest {
namespace {

using P = AttentionProblem;

bool any_extent_zero(const P& p) {
  return p.batch == 0 || p.q_len == 0 || p.kv_len == 0 || p.head_dim == 0 || p.v_head_dim == 0;
}

void no_extent_zero(P& p) {
  for (auto* extent : {&p.batch, &p.q_len, &p.kv_len, &p.head_dim, &p.v_head_dim})
    *extent = std::max<std::int64_t>(*extent, 1);
}

constexpr Switch kSwitches[] = {
    {any_extent_zero, no_extent_zero},
    {[](const P& p) { return p.num_heads != p.num_kv_heads; },
     [](P& p) { p.num_heads = p.num_kv_heads; }},
    {[](const P& p) { return !p.cu_seqlens_q.empty(); },
     [](P& p) {
       p.cu_seqlens_q.clear();
       p.cu_seqlens_k.clear();
     }},
    {[](const P& p) { return !p.seqlens_q.empty(); }, [](P& p) { p.seqlens_q.clear(); }},
    {[](const P& p) { return !p.seqlens_k.empty(); }, [](P& p) { p.seqlens_k.clear(); }},
    {[](const P& p) { return !p.left_pad_q.empty(); }, [](P& p) { p.left_pad_q.clear(); }},
    {[](const P& p) { return !p.left_pad_k.empty(); }, [](P& p) { p.left_pad_k.clear(); }},
    {[](const P& p) { return p.dropout_p > 0; }, [](P& p) { p.dropout_p = 0; }},
    {[](const P& p) { return p.mask != MaskKind::none; }, [](P& p) { p.mask = MaskKind::none; }},
    {[](const P& p) { return p.blocks; }, [](P& p) { p.blocks = false; }},
    {[](const P& p) { return p.bias != BiasKind::none; }, [](P& p) { p.bias = BiasKind::none; }},
    {[](const P& p) { return p.alibi_inside_softcap; },
     [](P& p) { p.alibi_inside_softcap = false; }},
    {[](const P& p) { return p.alibi != AlibiKind::none; },
     [](P& p) { p.alibi = AlibiKind::none; }},
    {[](const P& p) { return p.rope_dim != 0; }, [](P& p) { p.rope_dim = 0; }},
    {[](const P& p) { return p.rope_scale != 1; }, [](P& p) { p.rope_scale = 1; }},
    {[](const P& p) { return p.rope_ntk != 1; }, [](P& p) { p.rope_ntk = 1; }},
    {[](const P& p) { return p.rope_inverse; }, [](P& p) { p.rope_inverse = false; }},
    {[](const P& p) { return !p.positions.empty(); }, [](P& p) { p.positions.clear(); }},
    {[](const P& p) { return p.rope != RopePairing::none; },
     [](P& p) { p.rope = RopePairing::none; }},
    {[](const P& p) { return p.softcap != 0; }, [](P& p) { p.softcap = 0; }},
    {[](const P& p) { return p.scale.has_value(); }, [](P& p) { p.scale.reset(); }},
    {[](const P& p) { return p.sink != SinkKind::none; }, [](P& p) { p.sink = SinkKind::none; }},
    {[](const P& p) { return p.global_tokens > 0; }, [](P& p) { p.global_tokens = 0; }},
    {[](const P& p) { return p.window_left >= 0; }, [](P& p) { p.window_left = -1; }},
    {[](const P& p) { return p.window_right >= 0; }, [](P& p) { p.window_right = -1; }},
    {[](const P& p) { return p.base != Base::full; }, [](P& p) { p.base = Base::full; }},
    {[](const P& p) { return p.align != Align::bottom_right; },
     [](P& p) { p.align = Align::bottom_right; }},
    {[](const P& p) { return p.layout != Layout::bhld; }, [](P& p) { p.layout = Layout::bhld; }},
    {[](const P& p) { return p.v_data.has_value(); }, [](P& p) { p.v_data.reset(); }},
    {[](const P& p) { return p.cache_rotated; }, [](P& p) { p.cache_rotated = false; }},
    {[](const P& p) { return p.num_splits != 0; }, [](P& p) { p.num_splits = 0; }},
    {[](const P& p) { return p.pages != PageOrder::in_order; },
     [](P& p) { p.pages = PageOrder::in_order; }},
    {[](const P& p) { return p.cache_rows != 0; }, [](P& p) { p.cache_rows = 0; }},
    {[](const P& p) { return p.page_size > 1; }, [](P& p) { p.page_size = 1; }},
    {[](const P& p) { return p.cache != CacheKind::contiguous; },
     [](P& p) { p.cache = CacheKind::contiguous; }},
    {[](const P& p) { return !p.want_lse; }, [](P& p) { p.want_lse = true; }},
};

}  // namespace

std::span<const Switch> switches() { return kSwitches; }

}  // namespace attest
