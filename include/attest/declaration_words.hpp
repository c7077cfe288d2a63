// SPDX-License-Identifier: Apache-2.0
// The words of a declaration that its reader and its printer share.
#pragma once

#include <array>
#include <limits>
#include <string_view>

#include "attest/declaration.hpp"

namespace attest {

/// What a decode call cannot use: a kernel that does nothing else does not declare it.
constexpr bool is_of_forward_alone(Feature feature) {
  switch (feature) {
    case Feature::align_top_left:
    case Feature::align_bottom_right:
    case Feature::align_q_offset:
    case Feature::seqlens_k:
    case Feature::left_pad_q:
    case Feature::left_pad_k:
    case Feature::packed:
    case Feature::dropout:
    case Feature::layout_kv_packed:
    case Feature::layout_broadcast: return true;
    default: return false;
  }
}

/// A feature as `key=value`, or as a bare flag where `value` is empty.
struct FeatureWord {
  std::string_view key, value;
  Feature feature;
};

/// In the order of printing; words of one key stand together. v_head_dim is not among them: its
/// values are numbers.
inline constexpr FeatureWord kFeatureWords[] = {
    {"base", "causal", Feature::causal},
    {"base", "prefix", Feature::prefix},
    {"align", "top_left", Feature::align_top_left},
    {"align", "bottom_right", Feature::align_bottom_right},
    {"align", "q_offset", Feature::align_q_offset},
    {"window", "left", Feature::window_left},
    {"window", "right", Feature::window_right},
    {"global_tokens", "", Feature::global_tokens},
    {"gqa", "", Feature::gqa},
    {"seqlens_q", "", Feature::seqlens_q},
    {"seqlens_k", "", Feature::seqlens_k},
    {"left_pad_q", "", Feature::left_pad_q},
    {"left_pad_k", "", Feature::left_pad_k},
    {"packed", "", Feature::packed},
    {"mask", "", Feature::mask},
    {"blocks", "", Feature::blocks},
    {"bias", "", Feature::bias},
    {"bias_neg_inf", "", Feature::bias_neg_inf},
    {"alibi", "absolute", Feature::alibi_absolute},
    {"alibi", "signed", Feature::alibi_signed},
    {"alibi", "key_anchored", Feature::alibi_key_anchored},
    {"alibi_inside_softcap", "", Feature::alibi_inside_softcap},
    {"rope", "interleaved", Feature::rope_interleaved},
    {"rope", "half", Feature::rope_half},
    {"rope_partial", "", Feature::rope_partial},
    {"rope_scaling", "linear", Feature::rope_linear},
    {"rope_scaling", "ntk", Feature::rope_ntk},
    {"scale", "", Feature::scale},
    {"scale_nonpositive", "", Feature::scale_nonpositive},
    {"softcap", "", Feature::softcap},
    {"sink", "", Feature::sink},
    {"dropout", "", Feature::dropout},
    {"lse", "", Feature::lse},
    {"empty_dims", "", Feature::empty_dims},
    {"layout", "blhd", Feature::layout_blhd},
    {"layout", "bhdl", Feature::layout_bhdl},
    {"layout", "strided", Feature::layout_strided},
    {"layout", "kv_packed", Feature::layout_kv_packed},
    {"layout", "broadcast", Feature::layout_broadcast},
};
static_assert(std::size(kFeatureWords) == kNumFeatures - 1);

/// What `backward=` may list; `backward` alone is dQ, dK and dV.
struct BackwardWord {
  std::string_view name;
  bool BackwardScope::*served;
};
inline constexpr BackwardWord kBackwardWords[] = {{"bias", &BackwardScope::bias},
                                                  {"slopes", &BackwardScope::slopes},
                                                  {"sink", &BackwardScope::sink},
                                                  {"lse", &BackwardScope::lse}};

using TwoNames = std::array<std::string_view, 2>;
inline constexpr TwoNames kMaskPolarityNames{"keep", "drop"};
inline constexpr TwoNames kLseBaseNames{"e", "2"};
inline constexpr TwoNames kWindowBoundNames{"inclusive", "exclusive"};
inline constexpr TwoNames kLengthsNames{"end_row", "real_count"};
inline constexpr TwoNames kPaddingRowNames{"zero", "unspecified"};

inline DimSet any_dim() { return {{1, std::numeric_limits<std::int64_t>::max(), 1}}; }

/// A number of PrecisionProfile by name.
struct ProfileField {
  enum class Kind : std::uint8_t { roundoff, size, positive, one_or_two, boolean };
  std::string_view name;
  Kind kind;
  double (*get)(const PrecisionProfile& profile);
  void (*set)(PrecisionProfile& profile, double value);
};
const std::vector<ProfileField>& profile_fields();
const ProfileField* find_profile_field(std::string_view name);
bool allowed(const ProfileField& field, double value);
std::string_view allowed_text(const ProfileField& field);

}  // namespace attest
