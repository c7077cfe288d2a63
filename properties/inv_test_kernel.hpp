// SPDX-License-Identifier: Apache-2.0
// A small honest f32 kernel that computes in double, with threads and a workspace, and the ways in
// which the tests break what surrounds the arithmetic: state, threads, places, indices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attest/plugin.hpp"

namespace attest {

enum class Slip : std::uint8_t {
  none,
  every_second_call,
  every_third_call,
  from_the_second_call,
  v_of_the_first_call_of_a_shape,
  causal_of_the_call_before,
  workspace_assumed_zero,
  accumulator_shared_by_threads,
  rows_lost_beyond_two_threads,
  last_bit_by_threads,
  scale_by_batch,
  last_bit_by_batch,
  off_by_address,
  offset_16_bits,
  offset_32_bits,
  lengths_16_bits,
  mask_batch_taken_for_head,
  last_key_of_full_tile_lost,
  channel_64_lost,
  one_key_doubled,
  one_key_lost,
  hidden_key_at_the_end_seen,
};

class InvTestKernel : public Kernel {
 public:
  static inline Slip slip = Slip::none;
  static constexpr const char* kDeclaration =
      "dtype=f32 head_dim=any v_head_dim=any base=full,causal align=bottom_right mask seqlens_k "
      "gqa lse layout=bhld,blhd,strided deterministic thread_invariant batch_invariant";

  std::unique_ptr<Plan> plan(const std::string&, const attest_attention&, const Context&) override {
    auto plan = std::make_unique<Plan>();
    plan->workspace_bytes = sizeof(float);
    return plan;
  }

  void forward(const attest_attention& p, const Context& context) override {
    accept_only(p, {DType::f32},
                {Use::causal, Use::align_bottom_right, Use::mask, Use::lengths_k, Use::gqa,
                 Use::v_head_dim, Use::lse});
    ++calls_;
    wrong_ = (slip == Slip::every_second_call && calls_ % 2 == 0) ||
             (slip == Slip::every_third_call && calls_ % 3 == 0) ||
             (slip == Slip::from_the_second_call && calls_ >= 2);
    remember(p);
    const std::int64_t heads = p.q->shape[1], items = p.q->shape[0] * heads;
    const std::int64_t threads = std::min<std::int64_t>(context.num_threads, items);
    const auto work = [&](std::int64_t worker) {
      for (std::int64_t item = worker; item < items; item += threads)
        head(p, context, item / heads, item % heads);
    };
    std::vector<std::thread> others;
    for (std::int64_t worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
    if (threads > 0) work(0);
    for (std::thread& other : others) other.join();
    causal_before_ = p.base == ATTEST_BASE_CAUSAL;
  }

 private:
  /// The first v of every shape, for the kernel that packs it once.
  void remember(const attest_attention& p) {
    if (slip != Slip::v_of_the_first_call_of_a_shape) return;
    const std::vector<std::int64_t> shape(p.v->shape, p.v->shape + 4);
    std::vector<float>& kept = first_v_[shape];
    if (kept.empty()) {
      const TensorView<const float> v(p.v);
      for (std::int64_t b = 0; b < shape[0]; ++b)
        for (std::int64_t g = 0; g < shape[1]; ++g)
          for (std::int64_t j = 0; j < shape[2]; ++j)
            for (std::int64_t c = 0; c < shape[3]; ++c) kept.push_back(v(b, g, j, c));
    }
    packed_v_ = &kept;
  }

  static float at(const DLTensor* t, std::int64_t a, std::int64_t b, std::int64_t c,
                  std::int64_t d) {
    std::int64_t offset =
        a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3];
    if (slip == Slip::offset_16_bits) offset = static_cast<std::uint16_t>(offset);
    if (slip == Slip::offset_32_bits) offset = static_cast<std::uint32_t>(offset);
    return static_cast<const float*>(t->data)[offset];
  }

  float value(const attest_attention& p, std::int64_t b, std::int64_t g, std::int64_t j,
              std::int64_t c) const {
    if (!packed_v_) return at(p.v, b, g, j, c);
    const std::int64_t* shape = p.v->shape;
    return (
        *packed_v_)[static_cast<std::size_t>(((b * shape[1] + g) * shape[2] + j) * shape[3] + c)];
  }

  bool visible(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i,
               std::int64_t j, std::int64_t keys) const {
    const bool causal =
        slip == Slip::causal_of_the_call_before ? causal_before_ : p.base == ATTEST_BASE_CAUSAL;
    if (causal && j > i + keys - p.q->shape[2]) return false;
    if (!p.mask) return true;
    const bool collide = slip == Slip::mask_batch_taken_for_head && p.mask->shape[1] == 1 &&
                         p.mask->shape[0] == p.q->shape[1];
    const TensorView<const std::uint8_t> mask(p.mask);
    return collide ? mask.broadcast(h, 0, i, j) != 0 : mask.broadcast(b, h, i, j) != 0;
  }

  /// How often key j counts.
  static int count(std::int64_t j, std::int64_t keys) {
    if (slip == Slip::last_key_of_full_tile_lost && keys % 64 == 0 && j == keys - 1) return 0;
    const bool block_edge = j % 2048 == 2047;
    if (slip == Slip::one_key_doubled && keys > 4096 && block_edge) return 2;
    if (slip == Slip::one_key_lost && keys > 4096 && block_edge) return 0;
    return 1;
  }

  void head(const attest_attention& p, const Context& context, std::int64_t b, std::int64_t h) {
    const std::int64_t g = h / (p.q->shape[1] / p.k->shape[1]);
    std::int64_t keys =
        p.seqlens_k ? TensorView<const std::int32_t>(p.seqlens_k)(b) : p.k->shape[2];
    if (slip == Slip::lengths_16_bits) keys = static_cast<std::uint16_t>(keys);
    if (slip == Slip::hidden_key_at_the_end_seen && p.seqlens_k && keys > 1000)
      keys = std::min(keys + 1, p.k->shape[2]);
    for (std::int64_t i = 0; i < p.q->shape[2]; ++i) row(p, context, b, h, g, i, keys);
  }

  void row(const attest_attention& p, const Context& context, std::int64_t b, std::int64_t h,
           std::int64_t g, std::int64_t i, std::int64_t keys) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const bool apart = slip == Slip::accumulator_shared_by_threads && context.num_threads > 1;
    std::vector<double> scores(static_cast<std::size_t>(keys), kNone), own;
    std::vector<double>& sums = apart ? shared_ : own;
    sums.assign(static_cast<std::size_t>(p.v->shape[3]), 0);
    double most = kNone, total = 0;
    const std::int64_t channels =
        slip == Slip::channel_64_lost ? std::min<std::int64_t>(p.q->shape[3], 64) : p.q->shape[3];
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!visible(p, b, h, i, j, keys)) continue;
      double dot = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        dot += static_cast<double>(at(p.q, b, h, i, c)) * static_cast<double>(at(p.k, b, g, j, c));
      scores[static_cast<std::size_t>(j)] = p.scale * dot;
      most = std::max(most, p.scale * dot);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      const double score = scores[static_cast<std::size_t>(j)];
      if (score == kNone) continue;
      const double weight = count(j, keys) * std::exp(score - most);
      total += weight;
      for (std::size_t c = 0; c < sums.size(); ++c)
        sums[c] += weight * static_cast<double>(value(p, b, g, j, static_cast<std::int64_t>(c)));
    }
    double factor = total > 0 ? 1 / total : 0;
    if (slip == Slip::workspace_assumed_zero) factor += *static_cast<float*>(context.workspace);
    if (wrong_) factor *= 1.5;
    if (slip == Slip::scale_by_batch && p.q->shape[0] > 1) factor *= 0.75;
    if (slip == Slip::off_by_address && reinterpret_cast<std::uintptr_t>(p.k->data) % 64 != 0)
      factor *= 1.25;
    if (slip == Slip::rows_lost_beyond_two_threads && context.num_threads > 2 && i == 0) factor = 0;
    const bool last_bit = (slip == Slip::last_bit_by_threads && context.num_threads == 3) ||
                          (slip == Slip::last_bit_by_batch && p.q->shape[0] > 1);
    const TensorView<float> o(p.o), lse(p.lse);
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const auto out = static_cast<float>(sums[c] * factor);
      o(b, h, i, static_cast<std::int64_t>(c)) = last_bit ? std::nextafter(out, 100.0F) : out;
    }
    if (lse) lse(b, h, i) = static_cast<float>(total > 0 ? most + std::log(total) : kNone);
  }

  std::int64_t calls_ = 0;
  bool wrong_ = false, causal_before_ = false;
  std::map<std::vector<std::int64_t>, std::vector<float>> first_v_;
  const std::vector<float>* packed_v_ = nullptr;
  std::vector<double> shared_;
};

}  // namespace attest
