// SPDX-License-Identifier: Apache-2.0
// A small honest f32 kernel that computes in double, and the ways in which the tests break it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"

namespace attest {

enum class Break {
  none,
  first_key_counts_twice,
  mask_of_first_sequence,
  kv_head_by_modulo,
  last_of_odd_keys_lost,
  only_eight_keys,
  v_clamped,
  max_not_subtracted,
  causal_forgets_window,
  causal_plus_one,
  mask_as_minus_two,
  block_column_by_rows,
  sink_scaled,
  segments_leak,
  left_pad_ignored,
  v_read_as_contiguous,
  broadcast_mask_on_query_axis,
  offset_ignored,
  scale_ignored,
  last_channel_lost,
  positions_wrap,
  dropped_before_sum,
  alibi_sign_flipped,
  rope_always_on_halves,
  rope_ignores_offset,
  rope_scaling_ignored,
  alibi_never_inside_softcap,
};

class LawTestKernel : public Kernel {
 public:
  static inline Break broken = Break::none;

  void forward(const attest_attention& problem, const Context&) override {
    for_each_row(problem,
                 [&](std::int64_t b, std::int64_t h, std::int64_t i) { row(problem, b, h, i); });
  }

 private:
  struct Range {
    std::int64_t q0, q1, k0, k1, offset;
  };

  static std::int64_t entry(const DLTensor* list, std::int64_t n, std::int64_t otherwise) {
    return list ? TensorView<const std::int32_t>(list)(n) : otherwise;
  }

  /// The segment of row i; empty (q1 = 0) where there is none.
  static Range range_of(const attest_attention& p, std::int64_t b, std::int64_t i) {
    Range r{0, p.q->shape[2], 0, p.k->shape[2], 0};
    std::int64_t sequence = b;
    if (p.cu_seqlens_q) {
      sequence = 0;
      while (entry(p.cu_seqlens_q, sequence + 1, 0) <= i) {
        if (++sequence + 1 == p.cu_seqlens_q->shape[0]) return {0, 0, 0, 0, 0};
      }
      r.q0 = entry(p.cu_seqlens_q, sequence, 0), r.q1 = entry(p.cu_seqlens_q, sequence + 1, 0);
      if (broken != Break::segments_leak) {
        r.k0 = entry(p.cu_seqlens_k, sequence, 0);
        r.k1 = entry(p.cu_seqlens_k, sequence + 1, 0);
      }
    } else {
      r.q0 = entry(p.left_pad_q, b, 0), r.q1 = entry(p.seqlens_q, b, r.q1);
      r.k1 = entry(p.seqlens_k, b, r.k1);
      if (broken != Break::left_pad_ignored) r.k0 = entry(p.left_pad_k, b, 0);
    }
    if (p.align == ATTEST_ALIGN_BOTTOM_RIGHT) r.offset = (r.k1 - r.k0) - (r.q1 - r.q0);
    if (p.align == ATTEST_ALIGN_Q_OFFSET && broken != Break::offset_ignored)
      r.offset = entry(p.q_offset, sequence, 0);
    return r;
  }

  static bool by_rule(const attest_attention& p, std::int64_t query, std::int64_t key) {
    if (broken == Break::positions_wrap) key %= 16;
    const std::int64_t late = broken == Break::causal_plus_one ? 1 : 0;
    if (p.base == ATTEST_BASE_CAUSAL && key > query + late) return false;
    if (p.base == ATTEST_BASE_CAUSAL && broken == Break::causal_forgets_window) return true;
    return (p.window_left < 0 || query - key <= p.window_left) &&
           (p.window_right < 0 || key - query <= p.window_right);
  }

  static bool by_mask(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) {
    const TensorView<const std::uint8_t> mask(p.mask);
    if (!mask) return true;
    if (broken == Break::mask_of_first_sequence) b = 0;
    if (broken == Break::broadcast_mask_on_query_axis && mask.extent(2) == 1)
      j = std::min(i, p.k->shape[2] - 1);
    return mask.broadcast(b, h, i, j);
  }

  static bool by_blocks(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i,
                        std::int64_t j) {
    const TensorView<const std::uint8_t> blocks(p.blocks);
    if (!blocks) return true;
    std::int64_t column = j / p.block_k;
    if (broken == Break::block_column_by_rows)
      column = std::min(j / p.block_q, blocks.extent(3) - 1);
    return blocks.broadcast(b, h, i / p.block_q, column);
  }

  /// Row (b, h, i) of q or k, rotated to its position.
  static std::vector<double> rotated(const attest_attention& p, const DLTensor* tensor,
                                     std::int64_t b, std::int64_t h, std::int64_t i,
                                     std::int64_t position) {
    const TensorView<const float> view(tensor), cosines(p.rope_cos), sines(p.rope_sin);
    std::vector<double> row;
    for (std::int64_t c = 0; c < view.extent(3); ++c)
      row.push_back(static_cast<double>(view(b, h, i, c)));
    const bool halves = p.rope == ATTEST_ROPE_HALF || broken == Break::rope_always_on_halves;
    std::int64_t turn = position - p.rope_position;
    // The tables hold the positions of the right kernel alone.
    if (broken != Break::none && p.rope)
      turn = std::clamp<std::int64_t>(turn, 0, cosines.extent(0) - 1);
    for (std::int64_t t = 0; p.rope && t < p.rope_dim / 2; ++t) {
      auto cosine = static_cast<double>(cosines(turn, t));
      auto sine = static_cast<double>(sines(turn, t));
      if (broken == Break::rope_scaling_ignored) {
        const double angle =
            static_cast<double>(position) *
            std::pow(p.rope_base, -2.0 * static_cast<double>(t) / static_cast<double>(p.rope_dim));
        cosine = std::cos(angle), sine = std::sin(angle);
      }
      double& first = row[static_cast<std::size_t>(halves ? t : 2 * t)];
      double& second = row[static_cast<std::size_t>(halves ? t + p.rope_dim / 2 : 2 * t + 1)];
      const double x = first, y = second;
      first = x * cosine - y * sine;
      second = x * sine + y * cosine;
    }
    return row;
  }

  static double alibi(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t query,
                      std::int64_t key) {
    if (!p.alibi) return 0;
    const TensorView<const float> slopes(p.alibi_slopes);
    const double slope = static_cast<double>(slopes.rank() == 2 ? slopes(b, h) : slopes(h));
    const std::int64_t distance = p.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::abs(query - key)
                                  : p.alibi == ATTEST_ALIBI_SIGNED ? key - query
                                                                   : key;
    return (broken == Break::alibi_sign_flipped ? -slope : slope) * static_cast<double>(distance);
  }

  static double dot(const attest_attention& p, const std::vector<double>& q,
                    const std::vector<double>& k) {
    std::size_t channels = q.size();
    if (broken == Break::last_channel_lost && channels > 1) --channels;
    double sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += q[c] * k[c];
    const auto width = static_cast<double>(q.size());
    return sum * (broken == Break::scale_ignored ? 1 / std::sqrt(width) : p.scale);
  }

  static double value(const attest_attention& p, std::int64_t b, std::int64_t g, std::int64_t j,
                      std::int64_t c) {
    const TensorView<const float> v(p.v);
    if (broken == Break::v_read_as_contiguous) {
      const std::int64_t row = (b * v.extent(1) + g) * v.extent(2) + j;
      return static_cast<double>(static_cast<const float*>(p.v->data)[row * v.extent(3) + c]);
    }
    const auto x = static_cast<double>(v(b, g, j, c));
    return broken == Break::v_clamped ? std::clamp(x, -1.0, 1.0) : x;
  }

  static void row(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const TensorView<const float> bias(p.bias), sink(p.sink);
    const TensorView<const std::uint8_t> keep(p.keep);
    const TensorView<float> o(p.o), lse(p.lse);
    const Range at = range_of(p, b, i);
    const bool real = i >= at.q0 && i < at.q1;
    const std::int64_t kv_heads = p.k->shape[1];
    const std::int64_t g =
        broken == Break::kv_head_by_modulo ? h % kv_heads : h / (p.q->shape[1] / kv_heads);
    const std::int64_t n = real ? at.k1 - at.k0 : 0;
    std::vector<double> z(static_cast<std::size_t>(n), kNone);
    double max = kNone;
    const std::int64_t query = i - at.q0 + at.offset;
    const std::int64_t turn = broken == Break::rope_ignores_offset ? i - at.q0 : query;
    std::vector<double> q;
    if (n > 0) q = rotated(p, p.q, b, h, i, turn);
    for (std::int64_t key = 0; key < n; ++key) {
      const std::int64_t j = at.k0 + key;
      if (broken == Break::only_eight_keys && key >= 8) break;
      if (broken == Break::last_of_odd_keys_lost && n % 2 == 1 && n > 1 && key == n - 1) break;
      if (!by_rule(p, query, key) || !by_blocks(p, b, h, i, j)) continue;
      double extra = bias ? static_cast<double>(bias.broadcast(b, h, i, j)) : 0;
      if (!by_mask(p, b, h, i, j)) {
        if (broken != Break::mask_as_minus_two) continue;
        extra -= 2;
      }
      if (broken == Break::first_key_counts_twice && key == 0) extra += std::log(2.0);
      double score = dot(p, q, rotated(p, p.k, b, g, j, key));
      const double slant = alibi(p, b, h, query, key);
      const bool inside = p.alibi_inside_softcap && broken != Break::alibi_never_inside_softcap;
      if (inside) score += slant;
      if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
      if (!inside) score += slant;
      z[static_cast<std::size_t>(key)] = score + extra;
      max = std::max(max, z[static_cast<std::size_t>(key)]);
    }
    double sink_score = sink && real ? static_cast<double>(sink(h)) : kNone;
    if (broken == Break::sink_scaled) sink_score *= p.scale;
    const bool empty = max == kNone;
    max = std::max(max, sink_score);
    if (broken == Break::max_not_subtracted) max = 0;
    // As f32 exp overflows: beyond 88.7.
    const auto weigh = [&](double score) {
      return score == kNone ? 0 : static_cast<double>(std::exp(static_cast<float>(score - max)));
    };
    double sum = max == kNone ? 0 : weigh(sink_score);
    std::vector<double> out(static_cast<std::size_t>(o.extent(3)), 0);
    for (std::int64_t key = 0; key < n; ++key) {
      const double weight = weigh(z[static_cast<std::size_t>(key)]);
      const bool kept = !keep || keep(b, h, i, at.k0 + key);
      if (kept || broken != Break::dropped_before_sum) sum += weight;
      if (!kept || weight == 0) continue;
      for (std::size_t c = 0; c < out.size(); ++c)
        out[c] +=
            weight / (1 - p.dropout_p) * value(p, b, g, at.k0 + key, static_cast<std::int64_t>(c));
    }
    for (std::size_t c = 0; c < out.size(); ++c)
      o(b, h, i, static_cast<std::int64_t>(c)) = static_cast<float>(empty ? 0 : out[c] / sum);
    if (lse) lse(b, h, i) = static_cast<float>(empty ? sink_score : max + std::log(sum));
  }
};

}  // namespace attest
