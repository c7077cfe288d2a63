// SPDX-License-Identifier: Apache-2.0
#include "harness/narrow.hpp"

#include <algorithm>

namespace attest {

namespace {

constexpr std::int64_t kLargestDim = 4096;  // draw() asks for none beyond it

std::int64_t largest(const DimSet& set) {
  std::int64_t last = 0;
  for (const DimRange& range : set) last = std::max(last, range.last);
  return last;
}

DimSet common(const DimSet& a, const DimSet& b) {
  if (a == b) return a;
  DimSet set;
  const std::int64_t last = std::min({largest(a), largest(b), kLargestDim});
  for (std::int64_t value = 1; value <= last; ++value) {
    if (contains(a, value) && contains(b, value)) append(set, value);
  }
  return set;
}

/// 0 means no limit.
std::int64_t lower_limit(std::int64_t a, std::int64_t b) {
  return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

}  // namespace

void append(DimSet& set, std::int64_t value) {
  if (!set.empty() && set.back().last == value - 1)
    set.back().last = value;
  else
    set.push_back({value, value, 1});
}

void drop_ownerless(Declaration& d) {
  const auto drop = [&](Feature feature, bool owner) {
    if (!owner) d.features[static_cast<std::size_t>(feature)] = false;
  };
  const Declaration plain;
  const bool window = d.has(Feature::window_left) || d.has(Feature::window_right);
  const bool alibi = d.has(Feature::alibi_absolute) || d.has(Feature::alibi_signed) ||
                     d.has(Feature::alibi_key_anchored);
  const bool rope = d.has(Feature::rope_interleaved) || d.has(Feature::rope_half);
  drop(Feature::global_tokens, window);
  drop(Feature::bias_neg_inf, d.has(Feature::bias));
  drop(Feature::alibi_inside_softcap, alibi && d.has(Feature::softcap));
  for (const Feature of_rope : {Feature::rope_partial, Feature::rope_linear, Feature::rope_ntk})
    drop(of_rope, rope);
  drop(Feature::scale_nonpositive, d.has(Feature::scale));
  const bool padded_lengths = (d.has(Feature::left_pad_q) && d.has(Feature::seqlens_q)) ||
                              (d.has(Feature::left_pad_k) && d.has(Feature::seqlens_k));
  if (!d.has(Feature::mask)) d.mask_polarity = plain.mask_polarity;
  if (!d.has(Feature::window_left)) d.window_bound = plain.window_bound;
  if (!d.has(Feature::lse)) d.lse_base = plain.lse_base;
  if (!d.has(Feature::lse)) d.empty_lse = plain.empty_lse;
  if (!padded_lengths) d.lengths = plain.lengths;
  if (!may_have_padding_queries(d)) d.padding_row = plain.padding_row;
  d.masked_nan_safe &= window || d.has(Feature::causal) || d.has(Feature::prefix) ||
                       d.has(Feature::packed) || d.has(Feature::mask) || d.has(Feature::blocks);
}

std::optional<Declaration> narrowed(const Declaration& kernel, const Declaration& scope) {
  Declaration both = kernel;
  std::erase_if(both.dtypes, [&](DType dtype) { return !scope.has(dtype); });
  both.head_dims = common(kernel.head_dims, scope.head_dims);
  if (kernel.v_head_dims && scope.v_head_dims)
    both.v_head_dims = common(*kernel.v_head_dims, *scope.v_head_dims);
  else
    both.v_head_dims.reset();
  both.max_q_len = lower_limit(kernel.max_q_len, scope.max_q_len);
  both.max_kv_len = lower_limit(kernel.max_kv_len, scope.max_kv_len);
  for (std::size_t f = 0; f < both.features.size(); ++f)
    both.features[f] = kernel.features[f] && scope.features[f];
  both.base_full = kernel.base_full && scope.base_full;
  both.layout_bhld = kernel.layout_bhld && scope.layout_bhld;
  both.deterministic = kernel.deterministic && scope.deterministic;
  both.batch_invariant = kernel.batch_invariant && scope.batch_invariant;
  both.thread_invariant = kernel.thread_invariant && scope.thread_invariant;
  both.masked_nan_safe = kernel.masked_nan_safe && scope.masked_nan_safe;
  both.memory_linear = kernel.memory_linear && scope.memory_linear;
  if (both.dtypes.empty() || both.head_dims.empty()) return std::nullopt;
  drop_ownerless(both);
  // Whatever else is left without a value (no base, no layout) is found by reading it.
  Result<Declaration> read = parse_declaration(print_declaration(both));
  if (!read) return std::nullopt;
  return *read;
}

}  // namespace attest
