// SPDX-License-Identifier: Apache-2.0
// What a kernel says of itself: which problems it serves, how it encodes them, how precisely it
// computes, what it promises.
//
//   dtype=f32,bf16 head_dim=8..256%8 base=full,causal align=bottom_right gqa window lse
//   precision=mma_f32acc deterministic
//
// Not declared = not supported, and must be refused. What is declared must work. Grammar:
// docs/declaration.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/problem.hpp"
#include "attest/result.hpp"

namespace attest {

/// The arithmetic that the tolerance is derived from (docs/tolerance.md section 1): unit roundoffs
/// u_*, underflow thresholds eta_*. A zero u means "not rounded there".
struct PrecisionProfile {
  double u_acc = 0x1p-24;  ///< accumulator
  double c_acc =
      1;  ///< 1: round to nearest; 2: truncating accumulator, selects the worst-case bound
  double eta_acc = 0x1p-149;          ///< underflow of one accumulation
  double u_in = 0, eta_in = 0;        ///< q, k and v rounded before products (tf32: 2^-11)
  double u_score = 0, eta_score = 0;  ///< score stored in a narrow type
  double max_score = 0;               ///< largest finite stored score; 0: that of the accumulator
  double u_p = 0, eta_p = 0;          ///< P before P.V
  bool p_normalised = false;          ///< P is normalised before it is rounded
  bool l_from_rounded = false;        ///< the row sum adds rounded P
  bool lse_merged = false;            ///< parts are merged with exp(lse_s - lse), which need not
                                      ///< sum to 1; true in the presets
  double u_out = 0x1p-24,
         eta_out = 0x1p-150;  ///< output type of o; lse rounds as f32, as f64 for an f64 kernel
  double e_exp = 0x1p-22;     ///< relative error of exp, default 4 u_acc
  double eta_exp = 0x1p-126;  ///< exp may flush results below this to 0
  double u_rope = 0;          ///< relative error of one rotated product pair; 2 u_acc where RoPE is
                              ///< computed in the kernel
  double max_acc = 0x1.fffffep+127;  ///< largest finite accumulator
  bool operator==(const PrecisionProfile&) const = default;
};

/// Named precisions: f32 (everything in the accumulator), mma_f32acc (P in the storage type),
/// mma_f32acc_f32p, f32_tf32 (q, k, P, V rounded to tf32), fp16acc (f16 scores and accumulators).
/// An f64 subject computes in f64 whatever the name.
std::optional<PrecisionProfile> precision_preset(std::string_view name, DType dtype);
std::vector<std::string_view> precision_preset_names();

/// One range of head dims: first, first+step, ... up to last.
struct DimRange {
  std::int64_t first, last, step;
  bool operator==(const DimRange&) const = default;
};
using DimSet = std::vector<DimRange>;
bool contains(const DimSet& set, std::int64_t value);

/// What a problem can use beyond plain full attention. One closed list, so that scope, matrix and
/// refusals agree.
enum class Feature : std::uint8_t {
  gqa,         ///< num_kv_heads != num_heads
  v_head_dim,  ///< v_head_dim != head_dim
  causal,
  prefix,
  align_top_left,
  align_bottom_right,
  align_q_offset,  ///< only where the problem's answer depends on it
  window_left,
  window_right,
  global_tokens,
  seqlens_q,
  seqlens_k,
  left_pad_q,
  left_pad_k,
  packed,
  mask,
  blocks,
  bias,
  bias_neg_inf,
  alibi_absolute,
  alibi_signed,
  alibi_key_anchored,
  alibi_inside_softcap,
  rope_interleaved,
  rope_half,
  rope_partial,
  rope_linear,
  rope_ntk,
  scale,
  scale_nonpositive,
  softcap,
  sink,
  dropout,
  lse,
  layout_blhd,
  layout_bhdl,
  layout_strided,
  layout_kv_packed,
  layout_broadcast,
  empty_dims,  ///< batch, q_len, kv_len or v_head_dim is 0
};
inline constexpr int kNumFeatures = static_cast<int>(Feature::empty_dims) + 1;
std::string_view name(Feature feature);
std::optional<Feature> parse_feature(std::string_view text);

/// The features that this problem uses, in the order of the enum.
std::vector<Feature> features_of(const AttentionProblem& problem);

enum class MaskPolarity : std::uint8_t { keep, drop };
enum class LseBase : std::uint8_t { e, two };
enum class WindowBound : std::uint8_t { inclusive, exclusive /* the left bound alone */ };
enum class Lengths : std::uint8_t {
  end_row,
  real_count /* seqlens count the rows after the left pad */
};
/// What a query row outside every sequence gets: o = 0 and lse = -inf, or whatever was there.
enum class PaddingRow : std::uint8_t { zero, unspecified };

/// What a kernel's backward gives beside dQ, dK and dV.
struct BackwardScope {
  bool served = false;
  bool bias = false, slopes = false, sink = false;  ///< gradients of these
  bool lse = false;                                 ///< takes a gradient of lse
  bool operator==(const BackwardScope&) const = default;
};

/// What a kernel's decode takes.
struct CacheScope {
  bool contiguous = false, ring = false, paged = false;
  bool raw = true, rotated = false;  ///< with RoPE: keys lie in the cache before it, or after it
  bool splits = false;               ///< the caller may choose into how many parts keys are split
  DimSet page_sizes;                 ///< rows of a page; default: every value >= 1
  bool served() const { return contiguous || ring || paged; }
  bool serves(CacheKind kind) const {
    return kind == CacheKind::contiguous ? contiguous : kind == CacheKind::ring ? ring : paged;
  }
  bool operator==(const CacheScope&) const = default;
};

/// The rotary embedding as a component of its own.
struct RopeScope {
  bool served = false;
  bool inverse = false;  ///< turns back too
  bool operator==(const RopeScope&) const = default;
};

struct Declaration {
  std::string text;  ///< as written

  std::vector<DType> dtypes;
  DimSet head_dims;                   ///< default: every value >= 1
  std::optional<DimSet> v_head_dims;  ///< nullopt: v_head_dim equals head_dim
  std::int64_t max_q_len = 0;         ///< 0: no limit
  std::int64_t max_kv_len = 0;
  std::array<bool, kNumFeatures> features{};
  bool base_full = true;    ///< false: base=causal alone, say; plain full attention is not served
  bool layout_bhld = true;  ///< false: layout=blhd alone, say
  bool forward = true;      ///< false: the kernel decodes, or is a component, and nothing else
  BackwardScope backward;
  CacheScope cache;
  RopeScope rope;
  /// Lengths at which the kernel changes its algorithm, in ascending order.
  std::vector<std::int64_t> switch_lengths;

  MaskPolarity mask_polarity = MaskPolarity::keep;
  LseBase lse_base = LseBase::e;
  WindowBound window_bound = WindowBound::inclusive;
  Lengths lengths = Lengths::end_row;
  PaddingRow padding_row = PaddingRow::zero;
  EmptyOutput empty_output = EmptyOutput::zero;
  EmptyLse empty_lse = EmptyLse::neg_inf;

  std::array<std::string, 4> precision;     ///< preset name, by DType
  std::array<PrecisionProfile, 4> profile;  ///< preset with overrides applied, by DType

  bool deterministic = false;
  bool batch_invariant = false;
  bool thread_invariant = false;
  bool masked_nan_safe = false;
  /// Beyond its tensors a call needs memory that grows with the lengths, not with their product.
  bool memory_linear = false;

  bool has(Feature feature) const { return features[static_cast<std::size_t>(feature)]; }
  bool has(DType dtype) const;
  const PrecisionProfile& profile_for(DType dtype) const {
    return profile[static_cast<std::size_t>(dtype)];
  }
};

/// Whether problems with query rows outside every sequence are served.
inline bool may_have_padding_queries(const Declaration& d) {
  return d.has(Feature::seqlens_q) || d.has(Feature::left_pad_q) || d.has(Feature::packed);
}

/// Refuses unknown and repeated keys and a declaration that contradicts itself (no dtype,
/// global_tokens without a window, masked_nan_safe without anything that masks, ...); the error
/// names the key.
Result<Declaration> parse_declaration(std::string_view text);
std::string print_declaration(const Declaration& declaration);

/// Whether tensors may lie like this.
bool serves_layout(const Declaration& declaration, Layout layout);

/// Why the declaration does not cover this problem ("feature window_left", "head_dim 65", ...);
/// nullopt where it does.
std::optional<std::string> not_declared(const Declaration& declaration,
                                        const AttentionProblem& problem);

}  // namespace attest
