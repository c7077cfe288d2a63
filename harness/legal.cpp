// SPDX-License-Identifier: Apache-2.0
#include "harness/legal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "attest/names.hpp"
#include "attest/sequences.hpp"

namespace attest {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 62;
constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kInt32Min = std::numeric_limits<std::int32_t>::min();
/// Extents that an overflowing problem is cut to: 4096^4 elements of 8 bytes are 2^51.
constexpr std::int64_t kCutExtent = 4096;
/// Per-sequence lists are completed up to here; beyond, they are dropped.
constexpr std::int64_t kMostSequences = 4096;

template <class E>
void mend_enum(E& value) {
  if (!in_list(value)) value = E{};
}

void mend_names(AttentionProblem& p) {
  mend_enum(p.dtype);
  mend_enum(p.base);
  mend_enum(p.align);
  mend_enum(p.mask);
  mend_enum(p.bias);
  mend_enum(p.alibi);
  mend_enum(p.slopes);
  mend_enum(p.sink);
  mend_enum(p.rope);
  mend_enum(p.empty_output);
  mend_enum(p.empty_lse);
  mend_enum(p.layout);
  mend_enum(p.data);
  if (p.v_data) mend_enum(*p.v_data);
  mend_enum(p.operation);
  mend_enum(p.d_o_data);
  mend_enum(p.cache);
  mend_enum(p.pages);
}

void mend_scalars(AttentionProblem& p) {
  if (p.scale && !std::isfinite(*p.scale)) p.scale.reset();
  if (!(p.softcap >= 0) || std::isinf(p.softcap)) p.softcap = 0;
  if (!(p.dropout_p >= 0 && p.dropout_p < 1)) p.dropout_p = 0;
}

void mend_dims(AttentionProblem& p) {
  for (auto* extent : {&p.batch, &p.q_len, &p.kv_len, &p.head_dim, &p.v_head_dim})
    *extent = std::max<std::int64_t>(*extent, 0);
  if (p.head_dim == 0 && !p.scale) p.head_dim = 1;
  p.num_heads = std::max<std::int64_t>(p.num_heads, 1);
  p.num_kv_heads = std::max<std::int64_t>(p.num_kv_heads, 1);
  const auto overflows = [](std::array<std::int64_t, 4> extents) {
    std::int64_t bytes = 8;
    for (const std::int64_t extent : extents)
      bytes = saturating_multiply(bytes, std::max<std::int64_t>(extent, 1));
    return bytes > kLimit / 8;
  };
  if (overflows({p.batch, p.num_heads, p.q_len, p.head_dim}) ||
      overflows({p.batch, p.num_heads, p.q_len, p.v_head_dim}) ||
      overflows({p.batch, p.num_kv_heads, p.kv_len, p.head_dim}) ||
      overflows({p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim}) ||
      overflows({p.batch, p.num_heads, p.q_len, p.kv_len}))
    for (auto* extent :
         {&p.batch, &p.num_heads, &p.num_kv_heads, &p.q_len, &p.kv_len, &p.head_dim, &p.v_head_dim})
      *extent = std::min(*extent, kCutExtent);
  if (p.num_heads % p.num_kv_heads != 0) p.num_kv_heads = std::gcd(p.num_heads, p.num_kv_heads);
}

/// Ascending from 0, `most` at the end at most.
void mend_cumulative(std::vector<std::int64_t>& starts, std::int64_t most) {
  starts.front() = 0;
  for (std::size_t s = 1; s < starts.size(); ++s)
    starts[s] = std::clamp(starts[s], starts[s - 1], most);
}

void mend_packing(AttentionProblem& p) {
  const std::size_t count = std::min(p.cu_seqlens_q.size(), p.cu_seqlens_k.size());
  if (count < 2) {
    p.cu_seqlens_q.clear();
    p.cu_seqlens_k.clear();
    return;
  }
  p.batch = 1;
  p.cu_seqlens_q.resize(count);
  p.cu_seqlens_k.resize(count);
  mend_cumulative(p.cu_seqlens_q, std::min(p.q_len, kInt32Max));
  mend_cumulative(p.cu_seqlens_k, std::min(p.kv_len, kInt32Max));
  for (auto* list : {&p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k}) list->clear();
}

/// One entry per sequence, each within [least, most]; missing ones become `filler`.
void mend_list(std::vector<std::int64_t>& list, std::int64_t count, std::int64_t least,
               std::int64_t most, std::int64_t filler) {
  const auto have = static_cast<std::int64_t>(list.size());
  if (have < count && count > kMostSequences) {
    list.clear();
    return;
  }
  list.resize(static_cast<std::size_t>(count), filler);
  for (std::int64_t& entry : list) entry = std::clamp(entry, least, most);
}

void mend_lengths(AttentionProblem& p) {
  const auto mend_pair = [&p](std::vector<std::int64_t>& lens, std::vector<std::int64_t>& pads,
                              std::int64_t capacity) {
    const std::int64_t most = std::min(capacity, kInt32Max);
    if (!lens.empty()) mend_list(lens, p.batch, 0, most, most);
    if (pads.empty()) return;
    mend_list(pads, p.batch, 0, most, 0);
    for (std::size_t n = 0; n < pads.size() && n < lens.size(); ++n)
      pads[n] = std::min(pads[n], lens[n]);
  };
  mend_pair(p.seqlens_q, p.left_pad_q, p.q_len);
  mend_pair(p.seqlens_k, p.left_pad_k, p.kv_len);
}

void mend_positions(AttentionProblem& p) {
  if (p.operation == Operation::rope) return;
  const std::int64_t sequences = num_sequences(p);
  if (p.align == Align::q_offset)
    mend_list(p.q_offset, sequences, kInt32Min, kInt32Max, 0);
  else
    p.q_offset.clear();
  if (p.align == Align::q_offset && p.q_offset.empty() && sequences > 0)
    p.align = Align::bottom_right;
  if (p.base == Base::prefix)
    mend_list(p.prefix_len, sequences, 0, kInt32Max, 0);
  else
    p.prefix_len.clear();
  if (p.base == Base::prefix && p.prefix_len.empty() && sequences > 0) p.base = Base::causal;
  for (auto* bound : {&p.window_left, &p.window_right})
    if (*bound < -1 || *bound > kLimit) *bound = -1;
  p.global_tokens = std::clamp<std::int64_t>(p.global_tokens, 0, kLimit);
  if (p.window_left == -1 && p.window_right == -1) p.global_tokens = 0;
}

void mend_alibi(AttentionProblem& p) {
  if (p.alibi == AlibiKind::none) {
    p.slopes = SlopesKind::standard;
    p.alibi_inside_softcap = false;
  }
  if (p.softcap == 0) p.alibi_inside_softcap = false;
}

void mend_rope(AttentionProblem& p) {
  const AttentionProblem defaults;
  if (p.head_dim < 2) p.rope = RopePairing::none;
  if (p.rope == RopePairing::none) {
    p.rope_dim = defaults.rope_dim;
    p.rope_base = defaults.rope_base;
    p.rope_scale = defaults.rope_scale;
    p.rope_ntk = defaults.rope_ntk;
    return;
  }
  if (p.rope_dim != 0 && (p.rope_dim < 2 || p.rope_dim % 2 != 0 || p.rope_dim > p.head_dim))
    p.rope_dim = 0;
  const auto outside = [](double value) { return !(value >= 0x1p-40 && value <= 0x1p40); };
  if (outside(p.rope_base)) p.rope_base = defaults.rope_base;
  if (outside(p.rope_scale)) p.rope_scale = 1;
  if (outside(p.rope_ntk) || effective_rope_dim(p) <= 2) p.rope_ntk = 1;
}

/// A rotary embedding alone has few fields, and a position for each row.
void mend_rope_call(AttentionProblem& p) {
  if (p.operation != Operation::rope) {
    p.positions.clear();
    p.rope_inverse = false;
    return;
  }
  p = rope_alone(p);
  p.head_dim = p.v_head_dim = std::max<std::int64_t>(p.head_dim, 2);
  if (p.rope == RopePairing::none) p.rope = RopePairing::interleaved;
  if (p.layout == Layout::kv_packed || p.layout == Layout::broadcast || p.layout == Layout::far)
    p.layout = Layout::blhd;
  p.q_len = std::min(p.q_len, kInt32Max);
  constexpr std::int64_t kMostRows = std::int64_t{1} << 24;
  if (std::ssize(p.positions) != saturating_multiply(p.batch, p.q_len)) p.positions.clear();
  for (std::int64_t& entry : p.positions) entry = std::clamp(entry, kInt32Min, kInt32Max);
  if (!p.positions.empty() || std::ssize(p.q_offset) != p.batch) p.q_offset.clear();
  for (std::int64_t& entry : p.q_offset)
    entry = std::clamp(entry, kInt32Min, std::max(kInt32Max - p.q_len, kInt32Min));
  if (row_positions(p).count <= kMostRows) return;
  p.positions.clear();
  p.q_offset.clear();
  p.q_len = std::min(p.q_len, kCutExtent);
}

void mend_t5(AttentionProblem& p) {
  const AttentionProblem defaults;
  if (p.bias == BiasKind::t5) {
    p.bias_axes.q = p.bias_axes.k = true;
    const std::int64_t exact = (p.t5_bidirectional ? p.t5_buckets / 2 : p.t5_buckets) / 2;
    if (exact >= 1 && p.t5_buckets <= 1024 && p.t5_max_distance > exact &&
        p.t5_max_distance <= kInt32Max)
      return;
  } else {
    p.t5_bidirectional = defaults.t5_bidirectional;
  }
  p.t5_buckets = defaults.t5_buckets;
  p.t5_max_distance = defaults.t5_max_distance;
}

void mend_axes(AttentionProblem& p) {
  const AttentionProblem defaults;
  if (p.mask == MaskKind::none) p.mask_axes = {};
  if (p.bias == BiasKind::none) p.bias_axes = {};
  p.block_axes.q = p.block_axes.k = true;
  if (!p.blocks) p.block_axes = {};
  for (auto* rows : {&p.block_q, &p.block_k})
    if (!p.blocks || *rows < 1 || *rows > kLimit) *rows = defaults.block_q;
}

std::int64_t count_of(const AttentionProblem& p, const Axes& axes, std::int64_t rows,
                      std::int64_t keys) {
  return (axes.b ? p.batch : 1) * (axes.h ? p.num_heads : 1) * (axes.q ? rows : 1) *
         (axes.k ? keys : 1);
}

bool has_count(const std::vector<double>& values, std::int64_t count) {
  return static_cast<std::int64_t>(values.size()) == count;
}

void round_all(std::vector<double>& values, DType type) {
  for (double& value : values) value = round_to(type, value);
}

/// Literal k and v repeat over a batch that shares them.
void repeat_first(std::vector<double>& values, std::int64_t batch) {
  if (batch < 2) return;
  const std::size_t count = values.size() / static_cast<std::size_t>(batch);
  for (std::size_t n = count; n < values.size(); ++n) values[n] = values[n - count];
}

/// The rows of pages that sequences share are those of the first.
void repeat_on_pages(const AttentionProblem& p, std::vector<double>& values,
                     std::int64_t channels) {
  const std::int64_t shared = shared_pages(p);
  if (shared == 0 || values.empty()) return;
  const auto of_head = static_cast<std::size_t>(p.kv_len * channels);
  const std::size_t of_sequence = of_head * static_cast<std::size_t>(p.num_kv_heads);
  const auto on_pages = static_cast<std::size_t>(shared * p.page_size * channels);
  for (std::size_t n = of_sequence; n < values.size(); ++n)
    if (n % of_head < on_pages) values[n] = values[n % of_sequence];
}

void mend_qkv_literals(AttentionProblem& p) {
  Literal& given = p.literal;
  const auto fits_qk = [&] {
    if (p.operation == Operation::rope)
      return has_count(given.q, p.batch * p.num_heads * p.q_len * p.head_dim);
    return has_count(given.q, p.batch * p.num_heads * p.q_len * p.head_dim) &&
           has_count(given.k, p.batch * p.num_kv_heads * p.kv_len * p.head_dim);
  };
  const auto fits_v = [&] {
    if (p.operation == Operation::rope) return true;
    return has_count(given.v, p.batch * p.num_kv_heads * p.kv_len * p.v_head_dim);
  };
  if (p.v_data == Family::list && !fits_v()) p.v_data = Family::gaussian;
  if (p.data == Family::list && !(fits_qk() && (p.v_data || fits_v()))) p.data = Family::gaussian;
  if (p.data != Family::list) {
    given.q.clear();
    given.k.clear();
  }
  if (p.v_data.value_or(p.data) != Family::list) given.v.clear();
  for (auto* values : {&given.q, &given.k, &given.v}) round_all(*values, p.dtype);
  if (p.layout == Layout::broadcast) {
    repeat_first(given.k, p.batch);
    repeat_first(given.v, p.batch);
  }
  repeat_on_pages(p, given.k, p.head_dim);
  repeat_on_pages(p, given.v, p.v_head_dim);
}

void mend_other_literals(AttentionProblem& p) {
  Literal& given = p.literal;
  const auto blocks_of = [](std::int64_t rows, std::int64_t block) {
    return rows / block + (rows % block != 0);
  };
  const auto make_boolean = [](std::vector<double>& values) {
    for (double& value : values) value = value != 0 ? 1 : 0;
  };
  if (p.bias == BiasKind::list &&
      !has_count(given.bias, count_of(p, p.bias_axes, p.q_len, p.kv_len)))
    p.bias = BiasKind::normal;
  if (p.bias != BiasKind::list) given.bias.clear();
  round_all(given.bias, p.dtype);
  if (p.mask == MaskKind::list &&
      !has_count(given.mask, count_of(p, p.mask_axes, p.q_len, p.kv_len)))
    p.mask = MaskKind::random;
  if (p.mask != MaskKind::list) given.mask.clear();
  make_boolean(given.mask);

  const DType statistic = p.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (p.sink == SinkKind::list && !has_count(given.sink, p.num_heads)) p.sink = SinkKind::normal;
  if (p.sink != SinkKind::list) given.sink.clear();
  round_all(given.sink, statistic);
  if (p.slopes == SlopesKind::list && !has_count(given.slopes, p.num_heads) &&
      !has_count(given.slopes, p.batch * p.num_heads))
    p.slopes = SlopesKind::standard;
  if (p.slopes != SlopesKind::list) given.slopes.clear();
  round_all(given.slopes, statistic);
  for (double& slope : given.slopes)
    if (!std::isfinite(slope)) slope = 0;

  if (!p.blocks || !has_count(given.blocks, count_of(p, p.block_axes, blocks_of(p.q_len, p.block_q),
                                                     blocks_of(p.kv_len, p.block_k))))
    given.blocks.clear();
  make_boolean(given.blocks);
  if (!(p.dropout_p > 0) || !has_count(given.keep, p.batch * p.num_heads * p.q_len * p.kv_len))
    given.keep.clear();
  make_boolean(given.keep);
}

/// What decoding does not have, and no more new rows than rows.
void mend_rows_of_decode(AttentionProblem& p) {
  if (p.operation != Operation::decode) return;
  p.align = Align::bottom_right;
  p.q_offset.clear();
  p.cu_seqlens_q.clear();
  p.cu_seqlens_k.clear();
  p.left_pad_q.clear();
  p.left_pad_k.clear();
  p.dropout_p = 0;
  p.literal.keep.clear();
  p.kv_len = std::min(p.kv_len, kInt32Max);
  p.q_len = std::min(p.q_len, p.kv_len);
}

/// The same of every sequence.
void mend_sequences_of_decode(AttentionProblem& p) {
  if (p.operation != Operation::decode) return;
  if (p.seqlens_q.empty() && !p.seqlens_k.empty() && p.batch <= kMostSequences)
    p.seqlens_q.assign(static_cast<std::size_t>(p.batch), p.q_len);
  if (p.seqlens_k.empty() && p.seqlens_q.empty()) return;
  for (std::size_t b = 0; b < p.seqlens_q.size() && b < p.seqlens_k.size(); ++b)
    p.seqlens_q[b] = std::clamp<std::int64_t>(
        p.seqlens_q[b], 0, std::min(p.q_len, std::max<std::int64_t>(p.seqlens_k[b], 0)));
  if (std::all_of(p.seqlens_q.begin(), p.seqlens_q.end(),
                  [&](std::int64_t rows) { return rows == p.q_len; }))
    p.seqlens_q.clear();
}

void mend_cache(AttentionProblem& p) {
  if (p.operation != Operation::decode) return drop_cache(p);
  if (p.layout == Layout::kv_packed || p.layout == Layout::broadcast || p.layout == Layout::far)
    p.layout = Layout::blhd;
  if (p.cache_rows < 0 || p.cache_rows > kInt32Max) p.cache_rows = 0;
  if (p.cache != CacheKind::paged) {
    p.page_size = 0;
    p.pages = PageOrder::in_order;
  } else {
    p.page_size = std::clamp<std::int64_t>(p.page_size, 1, kInt32Max);
  }
  if (p.cache == CacheKind::ring) {
    // A ring that wraps has a window; one row more than it, at least.
    const std::int64_t rows = p.cache_rows > 0 ? p.cache_rows : p.kv_len;
    if (rows < p.kv_len) {
      p.global_tokens = 0;
      if (rows < p.q_len || p.q_len == p.kv_len)
        p.cache_rows = 0;
      else if (p.window_left < 0 || p.window_left > rows - p.q_len)
        p.window_left = rows - p.q_len;
    }
  } else if (p.cache_rows < p.kv_len) {
    p.cache_rows = 0;
  }
  if (p.rope == RopePairing::none) p.cache_rotated = false;
  p.num_splits = std::clamp<std::int64_t>(p.num_splits, 0, kInt32Max);
}

void mend_backward(AttentionProblem& p) {
  if (p.operation == Operation::forward) p = forward_of(std::move(p));
  if (p.operation == Operation::decode) drop_gradients(p);
  if (!p.want_lse) p.d_lse = false;
  if (p.d_o_layout && (!in_list(*p.d_o_layout) || *p.d_o_layout == Layout::kv_packed ||
                       *p.d_o_layout == Layout::far))
    p.d_o_layout.reset();
  Literal& given = p.literal;
  if (p.d_o_data == Family::list &&
      !has_count(given.d_o, p.batch * p.num_heads * p.q_len * p.v_head_dim))
    p.d_o_data = Family::gaussian;
  if (p.d_o_data != Family::list) given.d_o.clear();
  if (!p.d_lse || !has_count(given.d_lse, p.batch * p.num_heads * p.q_len)) given.d_lse.clear();
  if (p.d_o_layout == Layout::broadcast && !given.d_o.empty())
    std::fill(given.d_o.begin(), given.d_o.end(), given.d_o.front());
  round_all(given.d_o, p.dtype);
  round_all(given.d_lse, p.dtype == DType::f64 ? DType::f64 : DType::f32);
}

/// identity_v needs a channel per key; a single 1 per key at channel j mod Dv does not.
void mend_families(AttentionProblem& p) {
  if (p.v_head_dim >= p.kv_len) return;
  if (p.v_data == Family::identity_v) p.v_data = Family::one_hot_v;
  if (!p.v_data && p.data == Family::identity_v) p.data = Family::one_hot_v;
}

}  // namespace

AttentionProblem mend(AttentionProblem problem) {
  for (auto* step :
       {mend_names, mend_scalars, mend_dims, mend_rope_call, mend_rows_of_decode, mend_packing,
        mend_lengths, mend_sequences_of_decode, mend_positions, mend_alibi, mend_rope, mend_cache,
        mend_t5, mend_axes, mend_qkv_literals, mend_other_literals, mend_backward, mend_families})
    step(problem);
  if (!problem_error(problem)) return problem;
  // A T5 bias shared by the batch where positions differ between sequences.
  if (problem.bias == BiasKind::t5) {
    problem.bias_axes.b = true;
    if (!problem_error(problem)) return problem;
  }
  // What is left are sums over all tensors that overflow together.
  for (auto* extent : {&problem.batch, &problem.num_heads, &problem.num_kv_heads, &problem.q_len,
                       &problem.kv_len, &problem.head_dim, &problem.v_head_dim})
    *extent = std::min(*extent, kCutExtent);
  problem.page_size = std::min(problem.page_size, kCutExtent);
  problem.cache_rows = 0;
  problem.rope = RopePairing::none;
  problem.literal = {};
  for (auto* step :
       {mend_dims, mend_rope_call, mend_rows_of_decode, mend_packing, mend_lengths,
        mend_sequences_of_decode, mend_positions, mend_alibi, mend_rope, mend_cache, mend_t5,
        mend_axes, mend_qkv_literals, mend_other_literals, mend_backward, mend_families})
    step(problem);
  if (!problem_error(problem)) return problem;
  AttentionProblem plain;
  plain.operation = problem.operation;
  plain.dtype = problem.dtype;
  return plain;
}

}  // namespace attest
