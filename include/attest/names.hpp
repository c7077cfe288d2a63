// SPDX-License-Identifier: Apache-2.0
// The names of the closed lists of AttentionProblem, as they stand in case lines, declarations and
// records. One table per list, in the order of its enum.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "attest/problem.hpp"

namespace attest {

template <class E>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<DType>{"f64", "f32", "f16", "bf16"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<Operation>{"forward", "backward",
                                                                     "decode", "rope"};
template <>
inline constexpr std::array<std::string_view, kNumGradients> kNamesOf<Gradient>{
    "q", "k", "v", "bias", "slopes", "sink"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<Base>{"full", "causal", "prefix"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<Align>{"bottom_right", "top_left",
                                                                 "q_offset"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<AlibiKind>{"none", "absolute", "signed",
                                                                     "key_anchored"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<RopePairing>{"none", "interleaved",
                                                                       "half"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<EmptyOutput>{"zero", "nan", "mean_v",
                                                                       "unspecified"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<EmptyLse>{"neg_inf", "pos_inf", "zero",
                                                                    "unspecified"};
template <>
inline constexpr std::array<std::string_view, 25> kNamesOf<Family>{
    "gaussian",     "uniform",       "integers",     "heavy_tails", "outlier_channels",
    "saturated",    "all_low",       "all_high",     "rising",      "falling",
    "equal_scores", "needle",        "identity_v",   "one_hot_v",   "constant_v",
    "alternating",  "subnormal",     "signed_zeros", "zeros",       "huge",
    "low_rank",     "repeated_keys", "sink_keys",    "addressed",   "list"};
template <>
inline constexpr std::array<std::string_view, 6> kNamesOf<BiasKind>{"none",   "normal", "neg_inf",
                                                                    "lowest", "t5",     "list"};
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<MaskKind>{
    "none", "random", "sparse", "dense", "all_true", "all_false", "empty_rows", "list"};
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<SinkKind>{"none", "normal", "mixed_inf",
                                                                    "large", "list"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<SlopesKind>{"standard", "random",
                                                                      "per_batch", "list"};
template <>
inline constexpr std::array<std::string_view, 7> kNamesOf<Layout>{
    "bhld", "blhd", "bhdl", "strided", "kv_packed", "broadcast", "far"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<CacheKind>{"contiguous", "ring", "paged"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<PageOrder>{"in_order", "shuffled",
                                                                     "shared"};

static_assert(kNamesOf<Family>.size() == static_cast<std::size_t>(Family::list) + 1);
static_assert(kNamesOf<BiasKind>.size() == static_cast<std::size_t>(BiasKind::list) + 1);
static_assert(kNamesOf<MaskKind>.size() == static_cast<std::size_t>(MaskKind::list) + 1);
static_assert(kNamesOf<SinkKind>.size() == static_cast<std::size_t>(SinkKind::list) + 1);
static_assert(kNamesOf<SlopesKind>.size() == static_cast<std::size_t>(SlopesKind::list) + 1);
static_assert(kNamesOf<Layout>.size() == static_cast<std::size_t>(Layout::far) + 1);

/// False for a number that is no value of the list.
template <class E>
constexpr bool in_list(E value) {
  return static_cast<std::size_t>(value) < kNamesOf<E>.size();
}

/// "?" for a number that is no value of the list.
template <class E>
constexpr std::string_view enum_name(E value) {
  return in_list(value) ? kNamesOf<E>[static_cast<std::size_t>(value)] : "?";
}

template <class E>
constexpr std::optional<E> parse_enum(std::string_view text) {
  for (std::size_t i = 0; i < kNamesOf<E>.size(); ++i)
    if (kNamesOf<E>[i] == text) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace attest
