// SPDX-License-Identifier: Apache-2.0
// One small honest kernel, f32 alone, that the misbehaving plug-ins of this folder are made of:
// each of them overrides one step and is right otherwise. Most serve a call in their own way once
// it is clear that it is one of those declared.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attest/plugin.hpp"

namespace attest::broken {

inline constexpr const char* kSimple =
    "dtype=f32 v_head_dim=any gqa base=full,causal align=top_left,bottom_right seqlens_k scale "
    "scale_nonpositive lse layout=any empty_dims deterministic";

class Simple : public Kernel {
 public:
  void forward(const attest_attention& p, const Context&) final {
    refuse(p);
    serve(p);
  }

 protected:
  virtual void serve(const attest_attention& p) const { attend(p); }

  /// What kSimple does not declare.
  virtual void refuse(const attest_attention& p) const {
    accept_only(p, {DType::f32},
                {Use::gqa, Use::v_head_dim, Use::causal, Use::align_top_left,
                 Use::align_bottom_right, Use::lengths_k, Use::lse});
    if (p.left_pad_k) throw Unsupported("left_pad_k is not served");
  }

  /// The position of query row 0 of a sequence with this many keys.
  virtual std::int64_t offset(const attest_attention& p, std::int64_t keys) const {
    return p.align == ATTEST_ALIGN_TOP_LEFT ? 0 : keys - p.q->shape[2];
  }

  virtual bool visible(const attest_attention& p, std::int64_t qpos, std::int64_t kpos) const {
    return p.base == ATTEST_BASE_FULL || kpos <= qpos;
  }

  static std::int64_t keys_of(const attest_attention& p, std::int64_t b) {
    return p.seqlens_k ? TensorView<const std::int32_t>(p.seqlens_k)(b) : p.k->shape[2];
  }

  static std::int64_t group_of(const attest_attention& p, std::int64_t h) {
    return h / (p.q->shape[1] / p.k->shape[1]);
  }

  void attend(const attest_attention& p) const {
    const TensorView<const float> q(p.q), k(p.k), v(p.v);
    const TensorView<float> o(p.o), lse(p.lse);
    std::vector<std::pair<std::int64_t, double>> weights;
    for_each_row(p, [&](auto b, auto h, auto i) {
      const std::int64_t g = group_of(p, h), keys = keys_of(p, b);
      weights.clear();
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        if (!visible(p, i + offset(p, keys), j)) continue;
        double z = 0;
        for (std::int64_t c = 0; c < q.extent(3); ++c)
          z += static_cast<double>(q(b, h, i, c)) * k(b, g, j, c);
        weights.emplace_back(j, z * p.scale);
        max = std::fmax(max, z * p.scale);
      }
      for (auto& [j, weight] : weights) sum += weight = std::exp(weight - max);
      if (lse) lse(b, h, i) = static_cast<float>(max + (weights.empty() ? 0 : std::log(sum)));
      for (std::int64_t c = 0; c < v.extent(3); ++c) {
        double out = 0;
        for (const auto& [j, weight] : weights) out += weight / sum * v(b, g, j, c);
        o(b, h, i, c) = static_cast<float>(out);
      }
    });
  }
};

/// Accidents happen on a few of a hundred problems, so that the rest of a run can show that it
/// completes; those that cost time on fewer.
inline bool unlucky(const attest_attention& p) { return p.k->shape[2] == 3; }
inline bool very_unlucky(const attest_attention& p) {
  return unlucky(p) && p.q->shape[2] == 3 && p.base == ATTEST_BASE_CAUSAL;
}

inline bool has_elements(const DLTensor* t) {
  for (int axis = 0; axis < t->ndim; ++axis)
    if (t->shape[axis] == 0) return false;
  return true;
}

/// Elements from the first to the last in memory.
inline std::int64_t span(const DLTensor* t) {
  std::int64_t last = 0;
  for (int axis = 0; axis < t->ndim; ++axis) last += (t->shape[axis] - 1) * t->strides[axis];
  return last + 1;
}

}  // namespace attest::broken
