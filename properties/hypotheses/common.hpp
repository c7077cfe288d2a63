// SPDX-License-Identifier: Apache-2.0
// What several hypotheses ask of a problem.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attest/sequences.hpp"
#include "harness/hypothesis.hpp"

namespace attest {

inline constexpr double kMinusInf = -std::numeric_limits<double>::infinity();
inline constexpr double kQuietNaN = std::numeric_limits<double>::quiet_NaN();

using Problem = const AttentionProblem&;

inline bool always(Problem) { return true; }
inline bool is_causal(Problem p) { return p.base == Base::causal; }
inline bool has_window(Problem p) { return p.window_left >= 0 || p.window_right >= 0; }
inline bool has_mask(Problem p) { return p.mask != MaskKind::none; }
inline bool has_bias(Problem p) { return p.bias != BiasKind::none; }
inline bool has_sink(Problem p) { return p.sink != SinkKind::none; }
inline bool has_alibi(Problem p) { return p.alibi != AlibiKind::none; }
inline bool has_rope(Problem p) { return p.rope != RopePairing::none; }
inline bool has_dropout(Problem p) { return p.dropout_p > 0; }
inline bool has_softcap(Problem p) { return p.softcap > 0; }
inline bool has_groups(Problem p) { return p.num_kv_heads != p.num_heads; }
inline bool is_packed(Problem p) { return !p.cu_seqlens_q.empty(); }
inline bool has_lengths(Problem p) {
  return !p.seqlens_q.empty() || !p.seqlens_k.empty() || !p.left_pad_q.empty() ||
         !p.left_pad_k.empty();
}
/// Something hides keys.
inline bool hides(Problem p) {
  return p.base != Base::full || has_window(p) || has_mask(p) || p.blocks || is_packed(p) ||
         has_lengths(p) || p.bias == BiasKind::neg_inf || p.bias == BiasKind::list || p.kv_len == 0;
}

/// visible() with one factor left out or replaced by the caller.
struct Factors {
  bool base, band, mask, blocks;
};
inline Factors factors(const Variant& v, const PairAt& at) {
  return {base_visible(v.problem, *at.row.segment, at.row.qpos, at.kpos),
          band_visible(v.problem, at.row.qpos, at.kpos),
          mask_visible(v.inputs, at.row.b, at.row.h, at.row.i, at.j),
          block_visible(v.problem, v.inputs, at.row.b, at.row.h, at.row.i, at.j)};
}

/// The key of a pair by its number within the sequence.
inline std::int64_t key_number(const PairAt& at) { return at.j - at.row.segment->k0; }
inline std::int64_t num_keys(const RowAt& at) { return at.segment->k1 - at.segment->k0; }

/// The steps may run after the variant has been copied or moved: they refer to it by address, so
/// compare() keeps it where it is.
inline std::string with_number(const std::string& text, long long number) {
  std::string out = text;
  const std::size_t at = out.find('#');
  if (at != std::string::npos) out.replace(at, 1, std::to_string(number));
  return out;
}

}  // namespace attest
