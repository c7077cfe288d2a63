// SPDX-License-Identifier: Apache-2.0
// A small honest f32 kernel that decodes from every kind of cache, and the ways in which the tests
// break it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attest/plugin.hpp"

namespace attest {

enum class CacheBreak : std::uint8_t {
  none,
  stored_key_rounded,
  stored_key_not_rotated,
  stored_value_is_key_row_before,
  factor_by_batch,
  write_between_rows,
  empty_rows_have_lse_zero,
  window_one_wider,
  accepts_what_does_not_fit,
  refuses_after_writing,
  kv_head_by_modulo,
  last_key_of_full_page_lost,
  oldest_key_of_full_ring_lost,
  first_key_counts_twice,
  factor_by_longest,
  lse_of_cached_keys_alone,
  nan_v_is_zero,
  hidden_keys_times_zero,
  lengths_16_bits,
  row_behind_the_end_added,
  hidden_keys_leak,
  one_percent_more,
  every_second_call,
  pages_taken_in_order,
  last_weight_lost,
  causal_plus_one,
  causal_without_cache,
  last_bit_comes_and_goes,
  channel_64_lost,
  parts_added_without_their_maxima,
  last_row_of_a_chunk_not_stored,
  drifts_with_threads,
  row_behind_the_end_zeroed,
  shared_page_written,
  v_clamped,
  last_o_unwritten,
};

class CacheTestKernel : public Kernel {
 public:
  static inline CacheBreak broken = CacheBreak::none;
  static constexpr const char* kDeclaration =
      "dtype=f32 head_dim=any v_head_dim=any base=full,causal align=bottom_right window gqa "
      "seqlens_q seqlens_k mask blocks bias scale sink softcap rope=half,interleaved rope_partial "
      "lse layout=bhld,blhd,bhdl,strided cache=contiguous,ring,paged cache_keys=raw,rotated splits "
      "precision=f32 deterministic batch_invariant thread_invariant masked_nan_safe";

  void forward(const attest_attention& p, const Context& context) override {
    threads_ = context.num_threads;
    decodes_ = false;
    for (std::int64_t b = 0; b < p.q->shape[0]; ++b) {
      const std::int64_t rows = entry(p.seqlens_q, b, p.q->shape[2]);
      const std::int64_t keys = entry(p.seqlens_k, b, p.k->shape[2]);
      attend(p, {b, keys - rows, rows});
    }
  }

  void decode(const attest_attention& p, const Context& context) override {
    threads_ = context.num_threads;
    decodes_ = true;
    wrong_ = is(CacheBreak::every_second_call) && ++calls_ % 2 == 0;
    last_bit_ = is(CacheBreak::last_bit_comes_and_goes) && ++calls_ % 2 == 0;
    std::vector<Sequence> sequences;
    longest_ = 0;
    for (std::int64_t b = 0; b < p.q->shape[0]; ++b) {
      std::int64_t cached = entry(p.cache_len, b, 0);
      if (is(CacheBreak::lengths_16_bits)) cached = static_cast<std::uint16_t>(cached);
      sequences.push_back({b, cached, entry(p.seqlens_q, b, p.q->shape[2])});
      longest_ = std::max(longest_, sequences.back().keys());
    }
    if (is(CacheBreak::refuses_after_writing))
      for (const Sequence& at : sequences)
        if (fits(p, at)) append(p, at);
    for (const Sequence& at : sequences) {
      if (fits(p, at)) continue;
      if (!is(CacheBreak::accepts_what_does_not_fit)) throw Invalid("no room");
      write_zeros(p);
      return;
    }
    for (const Sequence& at : sequences) append(p, at);
    for (const Sequence& at : sequences) attend(p, at);
    spoil(p, sequences);
  }

 private:
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  static bool is(CacheBreak which) { return broken == which; }

  struct Sequence {
    std::int64_t b, cached, rows;
    std::int64_t keys() const { return cached + rows; }
  };

  static std::int64_t entry(const DLTensor* list, std::int64_t n, std::int64_t otherwise) {
    return list ? TensorView<const std::int32_t>(list)(n) : otherwise;
  }

  static std::int64_t capacity(const attest_attention& p) {
    return p.k_cache->shape[2] * (p.block_table ? p.block_table->shape[1] : 1);
  }

  static bool fits(const attest_attention& p, const Sequence& at) {
    if (at.keys() <= capacity(p)) return true;
    return p.cache == ATTEST_CACHE_RING && p.window_left >= 0 && p.global_tokens == 0 &&
           p.window_left <= capacity(p) - at.rows;
  }

  static float& cell(const DLTensor* t, std::int64_t a, std::int64_t b, std::int64_t c,
                     std::int64_t d) {
    return static_cast<float*>(
        t->data)[a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3]];
  }

  /// Entry and row of a position in the caches.
  static std::pair<std::int64_t, std::int64_t> place(const attest_attention& p, std::int64_t b,
                                                     std::int64_t position) {
    const std::int64_t rows = p.k_cache->shape[2];
    if (p.cache == ATTEST_CACHE_CONTIGUOUS) return {b, position};
    if (p.cache == ATTEST_CACHE_RING) return {b, position % rows};
    const std::int64_t n = b * p.block_table->shape[1] + position / rows;
    if (is(CacheBreak::pages_taken_in_order))
      return {std::min(n, p.k_cache->shape[0] - 1), position % rows};
    return {TensorView<const std::int32_t>(p.block_table)(b, position / rows), position % rows};
  }

  static std::vector<double> load(const DLTensor* t, std::int64_t a, std::int64_t h,
                                  std::int64_t row) {
    std::vector<double> values;
    for (std::int64_t c = 0; c < t->shape[3]; ++c)
      values.push_back(static_cast<double>(cell(t, a, h, row, c)));
    return values;
  }

  static void rotate(const attest_attention& p, std::int64_t position, std::vector<double>& row) {
    if (!p.rope) return;
    const TensorView<const float> cosines(p.rope_cos), sines(p.rope_sin);
    const bool half = p.rope == ATTEST_ROPE_HALF;
    // The tables end at the positions of the right kernel.
    const std::int64_t turn =
        std::clamp<std::int64_t>(position - p.rope_position, 0, cosines.extent(0) - 1);
    for (std::int64_t t = 0; t < p.rope_dim / 2; ++t) {
      double& first = row[static_cast<std::size_t>(half ? t : 2 * t)];
      double& second = row[static_cast<std::size_t>(half ? t + p.rope_dim / 2 : 2 * t + 1)];
      const double x = first, y = second;
      const auto cosine = static_cast<double>(cosines(turn, t));
      const auto sine = static_cast<double>(sines(turn, t));
      first = x * cosine - y * sine;
      second = x * sine + y * cosine;
    }
  }

  static void append(const attest_attention& p, const Sequence& at) {
    for (std::int64_t i = 0; i < at.rows; ++i) {
      if (is(CacheBreak::last_row_of_a_chunk_not_stored) && i > 0 && i == at.rows - 1) continue;
      const auto [entry, row] = place(p, at.b, at.cached + i);
      for (std::int64_t g = 0; g < p.k->shape[1]; ++g) {
        std::vector<double> key = load(p.k, at.b, g, i);
        const bool turned = p.rope && p.cache_rotated;
        if (turned && !is(CacheBreak::stored_key_not_rotated)) rotate(p, at.cached + i, key);
        for (std::int64_t c = 0; c < p.k->shape[3]; ++c) {
          // NaN payloads and signs too.
          float stored = turned ? static_cast<float>(key[static_cast<std::size_t>(c)])
                                : cell(p.k, at.b, g, i, c);
          if (is(CacheBreak::stored_key_rounded)) stored = static_cast<float>(round_to_f16(stored));
          cell(p.k_cache, entry, g, row, c) = stored;
        }
        const bool before = is(CacheBreak::stored_value_is_key_row_before) && i > 0;
        for (std::int64_t c = 0; c < p.v->shape[3]; ++c)
          cell(p.v_cache, entry, g, row, c) = cell(p.v, at.b, g, before ? i - 1 : i, c);
      }
    }
  }

  static double round_to_f16(float value) {
    return std::isfinite(value) && std::fabs(value) < 1e4F
               ? std::ldexp(std::round(std::ldexp(static_cast<double>(value), 10)), -10)
               : static_cast<double>(value);
  }

  /// Key j of a sequence, rotated; new ones as the call has them, earlier ones from the cache.
  std::vector<double> key(const attest_attention& p, const Sequence& at, std::int64_t g,
                          std::int64_t j) const {
    if (!decodes_ || j >= at.cached) {
      std::vector<double> row = load(p.k, at.b, g, decodes_ ? j - at.cached : j);
      rotate(p, j, row);
      return row;
    }
    const auto [entry, slot] = place(p, at.b, j);
    std::vector<double> row = load(p.k_cache, entry, g, slot);
    if (!p.cache_rotated) rotate(p, j, row);
    return row;
  }

  double value(const attest_attention& p, const Sequence& at, std::int64_t g, std::int64_t j,
               std::int64_t c) const {
    double x = 0;
    if (!decodes_ || j >= at.cached) {
      x = static_cast<double>(cell(p.v, at.b, g, decodes_ ? j - at.cached : j, c));
    } else {
      const auto [entry, slot] = place(p, at.b, j);
      x = static_cast<double>(cell(p.v_cache, entry, g, slot, c));
    }
    if (is(CacheBreak::nan_v_is_zero) && std::isnan(x)) return 0;
    return is(CacheBreak::v_clamped) ? std::clamp(x, -1.0, 1.0) : x;
  }

  bool sees(const attest_attention& p, const Sequence& at, std::int64_t h, std::int64_t i,
            std::int64_t j) const {
    const std::int64_t query = at.cached + i;
    std::int64_t last = query;
    if (decodes_ && is(CacheBreak::causal_plus_one)) ++last;
    if (decodes_ && is(CacheBreak::causal_without_cache)) last = std::max(i, at.cached - 1);
    if (p.base == ATTEST_BASE_CAUSAL && j > last) return false;
    const std::int64_t left =
        p.window_left + (decodes_ && is(CacheBreak::window_one_wider) ? 1 : 0);
    if (p.window_left >= 0 && query - j > left) return false;
    if (p.window_right >= 0 && j - query > p.window_right) return false;
    const TensorView<const std::uint8_t> mask(p.mask), blocks(p.blocks);
    if (mask && !mask.broadcast(at.b, h, i, j)) return false;
    if (blocks && !blocks.broadcast(at.b, h, i / p.block_q, j / p.block_k)) return false;
    const std::int64_t rows = decodes_ ? p.k_cache->shape[2] : 1;
    if (is(CacheBreak::last_key_of_full_page_lost) && p.cache == ATTEST_CACHE_PAGED && rows > 1 &&
        at.keys() % rows == 0 && at.keys() > rows && j == at.cached - 1)
      return false;
    return !(is(CacheBreak::oldest_key_of_full_ring_lost) && p.cache == ATTEST_CACHE_RING &&
             at.keys() > rows && rows > 1 && j == at.keys() - rows);
  }

  double score(const attest_attention& p, const Sequence& at, std::int64_t h, std::int64_t i,
               std::int64_t j, const std::vector<double>& q, const std::vector<double>& k) const {
    const TensorView<const float> bias(p.bias);
    double dot = 0;
    for (std::size_t c = 0; c < q.size(); ++c)
      if (c < 64 || !is(CacheBreak::channel_64_lost)) dot += q[c] * k[c];
    double z = p.scale * dot;
    if (p.softcap > 0) z = p.softcap * std::tanh(z / p.softcap);
    if (bias) z += static_cast<double>(bias.broadcast(at.b, h, i, j));
    if (is(CacheBreak::first_key_counts_twice) && j == 0) z += std::log(2.0);
    return z;
  }

  /// Sum of weights and of weighted values of some keys, relative to exp(max).
  struct Part {
    double max = kNone, sum = 0;
    std::vector<double> o;
  };

  Part part(const attest_attention& p, const Sequence& at, std::int64_t h, std::int64_t i,
            const std::vector<double>& q, std::int64_t first, std::int64_t last) const {
    const std::int64_t g = head_of(p, h);
    Part part;
    part.o.assign(static_cast<std::size_t>(p.v->shape[3]), 0);
    std::vector<std::pair<std::int64_t, double>> scores;
    for (std::int64_t j = first; j < last; ++j) {
      if (!sees(p, at, h, i, j)) continue;
      scores.emplace_back(j, score(p, at, h, i, j, q, key(p, at, g, j)));
      part.max = std::max(part.max, scores.back().second);
    }
    // NaN is not above -Inf, and must show.
    for (const auto& [j, z] : scores)
      if (std::isnan(z)) part.max = z;
    if (is(CacheBreak::last_weight_lost) && decodes_ && scores.size() > 1) {
      const double lost = std::exp(scores.back().second - part.max);
      part.sum -= std::isnan(lost) ? 0 : 0.5 * lost;
    }
    for (const auto& [j, z] : scores) {
      const double weight = z == kNone ? 0 : std::exp(z - part.max);
      part.sum += weight;
      for (std::size_t c = 0; c < part.o.size() && z != kNone; ++c)
        part.o[c] += weight * value(p, at, g, j, static_cast<std::int64_t>(c));
    }
    const double leak = is(CacheBreak::hidden_keys_leak) ? 1e-3 : 0;
    if (is(CacheBreak::hidden_keys_leak) || is(CacheBreak::hidden_keys_times_zero))
      for (std::int64_t j = std::max<std::int64_t>(first, at.keys() - capacity_of(p)); j < last;
           ++j)
        for (std::size_t c = 0; c < part.o.size() && !sees(p, at, h, i, j); ++c)
          part.o[c] += leak * value(p, at, g, j, static_cast<std::int64_t>(c));
    return part;
  }

  std::int64_t capacity_of(const attest_attention& p) const {
    return decodes_ ? capacity(p) : p.k->shape[2];
  }

  static std::int64_t head_of(const attest_attention& p, std::int64_t h) {
    const std::int64_t kv_heads = p.k->shape[1];
    return is(CacheBreak::kv_head_by_modulo) ? h % kv_heads : h / (p.q->shape[1] / kv_heads);
  }

  void row(const attest_attention& p, const Sequence& at, std::int64_t h, std::int64_t i) const {
    const TensorView<float> lse(p.lse);
    const TensorView<const float> sink(p.sink);
    std::vector<double> q = load(p.q, at.b, h, i);
    rotate(p, at.cached + i, q);
    const std::int64_t count =
        std::clamp<std::int64_t>(p.num_splits, 1, std::max<std::int64_t>(at.keys(), 1));
    Part all;
    all.o.assign(static_cast<std::size_t>(p.v->shape[3]), 0);
    if (sink) all.max = static_cast<double>(sink(h)), all.sum = all.max == kNone ? 0 : 1;
    for (std::int64_t s = 0; s < count; ++s) {
      const Part next = part(p, at, h, i, q, s * at.keys() / count, (s + 1) * at.keys() / count);
      if (next.max == kNone) {
        for (std::size_t c = 0; c < all.o.size(); ++c) all.o[c] += next.o[c];
        continue;
      }
      const double max = std::isnan(next.max) ? next.max : std::max(all.max, next.max);
      const bool added = is(CacheBreak::parts_added_without_their_maxima);
      const double a = all.max == kNone || added ? 1 : std::exp(all.max - max);
      const double b = added ? 1 : std::exp(next.max - max);
      all.sum = all.sum * a + next.sum * b;
      for (std::size_t c = 0; c < all.o.size(); ++c) all.o[c] = all.o[c] * a + next.o[c] * b;
      all.max = max;
    }
    // +Inf - Inf of a score that is +Inf is NaN, as it should be.
    const bool empty = all.max == kNone;
    for (std::size_t c = 0; c < all.o.size(); ++c) {
      const bool last = c + 1 == all.o.size() && i + 1 == p.q->shape[2] && h + 1 == p.q->shape[1];
      if (is(CacheBreak::last_o_unwritten) && decodes_ && last) continue;
      // A leak shows in empty rows too.
      const double sum = empty ? all.o[c] : all.o[c] / all.sum;
      const auto out = static_cast<float>(sum * factor(p));
      cell(p.o, at.b, h, i, static_cast<std::int64_t>(c)) =
          last_bit_ && decodes_ ? std::nextafter(out, 1e30F) : out;
    }
    if (!lse) return;
    double logarithm = empty ? kNone : all.max + std::log(all.sum);
    if (is(CacheBreak::empty_rows_have_lse_zero) && empty && decodes_) logarithm = 0;
    if (is(CacheBreak::lse_of_cached_keys_alone) && decodes_ && at.cached > 0) {
      const Part cached = part(p, at, h, i, q, 0, at.cached);
      logarithm = cached.max == kNone ? kNone : cached.max + std::log(cached.sum);
    }
    lse(at.b, h, i) = static_cast<float>(logarithm);
  }

  double factor(const attest_attention& p) const {
    if (!decodes_) return 1;
    double factor = wrong_ ? 1.5 : 1;
    if (is(CacheBreak::factor_by_batch) && p.q->shape[0] > 1) factor = 0.75;
    if (is(CacheBreak::factor_by_longest)) factor = 1 + 0.01 * static_cast<double>(longest_);
    if (is(CacheBreak::one_percent_more)) factor = 1.01;
    if (is(CacheBreak::drifts_with_threads)) factor = 1 + 1e-3 * (threads_ - 1);
    return factor;
  }

  void attend(const attest_attention& p, const Sequence& at) {
    const TensorView<float> lse(p.lse);
    for (std::int64_t h = 0; h < p.q->shape[1]; ++h)
      for (std::int64_t i = 0; i < p.q->shape[2]; ++i) {
        if (i < at.rows) {
          row(p, at, h, i);
          continue;
        }
        for (std::int64_t c = 0; c < p.o->shape[3]; ++c) cell(p.o, at.b, h, i, c) = 0;
        if (lse) lse(at.b, h, i) = static_cast<float>(kNone);
      }
  }

  static void write_zeros(const attest_attention& p) {
    const TensorView<float> lse(p.lse);
    for (std::int64_t b = 0; b < p.o->shape[0]; ++b)
      for (std::int64_t h = 0; h < p.o->shape[1]; ++h)
        for (std::int64_t i = 0; i < p.o->shape[2]; ++i) {
          for (std::int64_t c = 0; c < p.o->shape[3]; ++c) cell(p.o, b, h, i, c) = 0;
          if (lse) lse(b, h, i) = 0;
        }
  }

  /// Beside the work.
  static void spoil(const attest_attention& p, const std::vector<Sequence>& sequences) {
    const DLTensor* cache = p.v_cache;
    if (is(CacheBreak::write_between_rows) && cache->strides[3] == 1 &&
        cache->strides[2] > cache->shape[3] && cache->shape[0] > 0 && cache->shape[2] > 1 &&
        cache->strides[1] >= cache->shape[2] * cache->strides[2])
      (&cell(cache, 0, 0, 0, 0))[cache->shape[3]] = 0;
    for (const Sequence& at : sequences) {
      if (at.cached > 0 && is(CacheBreak::shared_page_written) && cache->shape[3] > 0) {
        const auto [entry, row] =
            place(p, at.b, std::max<std::int64_t>(at.keys() - capacity(p), 0));
        if (at.keys() <= capacity(p)) cell(cache, entry, 0, row, 0) += 1;
      }
      // In front of the end of the page or block: there is a row, and nobody has it.
      if (at.keys() >= capacity(p) || at.keys() % cache->shape[2] == 0 || cache->shape[3] == 0)
        continue;
      const auto [entry, row] = place(p, at.b, at.keys());
      if (is(CacheBreak::row_behind_the_end_zeroed)) cell(cache, entry, 0, row, 0) = 0;
      if (is(CacheBreak::row_behind_the_end_added) && at.rows > 0)
        cell(p.o, at.b, 0, 0, 0) += 1e-3F * cell(cache, entry, 0, row, 0);
    }
  }

  int threads_ = 1;
  std::int64_t calls_ = 0, longest_ = 0;
  bool decodes_ = false, wrong_ = false, last_bit_ = false;
};

}  // namespace attest
