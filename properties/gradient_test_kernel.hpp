// SPDX-License-Identifier: Apache-2.0
// A small honest f32 kernel with a backward pass, both in double, and the ways in which the tests
// break it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"

namespace attest {

enum class GradientBreak {
  none,
  delta_dropped,
  dq_scale_missing,
  dk_scale_missing,
  softcap_derivative_missing,
  sink_gradient_sign,
  bias_gradient_not_summed,
  slope_gradient_of_distance,
  last_head_of_group_alone,
  first_key_twice_in_dv,
  dead_rows_move_dk,
  small_d_o_is_zero,
  hidden_keys_in_dv,
  hidden_keys_times_zero,
  weights_from_unshifted_scores,
  last_dv_unwritten,
  q_modified,
  comes_and_goes,
  d_o_read_as_o,
  dropout_of_next_key,
  nan_d_o_is_zero,
  drifts_with_threads,
};

class GradientTestKernel : public Kernel {
 public:
  static inline GradientBreak broken = GradientBreak::none;

  void forward(const attest_attention& p, const Context&) override {
    for_each_row(p, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const Row row = weigh(p, b, h, i);
      const TensorView<const float> v(p.v);
      const TensorView<float> o(p.o), lse(p.lse);
      for (std::int64_t c = 0; c < v.extent(3); ++c) {
        double sum = 0;
        for (const Pair& pair : row.pairs)
          sum += pair.p * pair.factor * static_cast<double>(v(b, row.g, pair.j, c));
        o(b, h, i, c) = static_cast<float>(sum);
      }
      if (lse) lse(b, h, i) = static_cast<float>(row.lse);
    });
  }

  void backward(const attest_attention& p, const Context& context) override {
    threads = context.num_threads;
    Sums sums(p);
    for_each_row(p, [&](std::int64_t b, std::int64_t h, std::int64_t i) { add(p, b, h, i, sums); });
    sums.write(p);
    if (broken == GradientBreak::q_modified) TensorView<float>(p.q)(0, 0, 0, 0) += 1;
  }

 private:
  static inline int threads = 1;
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  static bool is(GradientBreak which) { return broken == which; }

  struct Pair {
    std::int64_t j;
    double p, factor, slope;
  };
  struct Row {
    std::int64_t g = 0;
    std::vector<Pair> pairs;
    double lse = kNone, sink = 0;  ///< sink: its weight
  };

  static bool sees(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i,
                   std::int64_t j) {
    const TensorView<const std::uint8_t> mask(p.mask);
    const std::int64_t offset =
        p.align == ATTEST_ALIGN_BOTTOM_RIGHT ? p.k->shape[2] - p.q->shape[2] : 0;
    if (p.base == ATTEST_BASE_CAUSAL && j > i + offset) return false;
    return !mask || mask.broadcast(b, h, i, j);
  }

  /// kpos - qpos.
  static double distance(const attest_attention& p, std::int64_t i, std::int64_t j) {
    const std::int64_t offset =
        p.align == ATTEST_ALIGN_BOTTOM_RIGHT ? p.k->shape[2] - p.q->shape[2] : 0;
    return static_cast<double>(j - i - offset);
  }

  static double slope(const attest_attention& p, std::int64_t b, std::int64_t h) {
    if (!p.alibi_slopes) return 0;
    const TensorView<const float> slopes(p.alibi_slopes);
    return static_cast<double>(slopes.rank() == 2 ? slopes(b, h) : slopes(h));
  }

  static Row weigh(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i) {
    const TensorView<const float> q(p.q), k(p.k), bias(p.bias), sink(p.sink);
    const TensorView<const std::uint8_t> keep(p.keep);
    Row row;
    row.g = h / (p.q->shape[1] / p.k->shape[1]);
    std::vector<double> scores;
    double max = sink ? static_cast<double>(sink(h)) : kNone;
    for (std::int64_t j = 0; j < k.extent(2); ++j) {
      if (!sees(p, b, h, i, j)) continue;
      double dot = 0;
      for (std::int64_t c = 0; c < q.extent(3); ++c)
        dot += static_cast<double>(q(b, h, i, c)) * static_cast<double>(k(b, row.g, j, c));
      const double tanh = p.softcap > 0 ? std::tanh(p.scale * dot / p.softcap) : 0;
      const double capped = p.softcap > 0 ? p.softcap * tanh : p.scale * dot;
      scores.push_back(capped + (bias ? static_cast<double>(bias.broadcast(b, h, i, j)) : 0) +
                       slope(p, b, h) * distance(p, i, j));
      const double factor = !keep ? 1 : keep(b, h, i, j) ? 1 / (1 - p.dropout_p) : 0;
      row.pairs.push_back({j, 0, factor, 1 - tanh * tanh});
      max = std::max(max, scores.back());
    }
    if (max == kNone) {
      row.pairs.clear();
      return row;
    }
    double sum = sink ? std::exp(static_cast<double>(sink(h)) - max) : 0;
    for (const double score : scores) sum += std::exp(score - max);
    row.lse = max + std::log(sum);
    for (std::size_t n = 0; n < scores.size(); ++n) {
      row.pairs[n].p = std::exp(scores[n] - row.lse);
      if (is(GradientBreak::weights_from_unshifted_scores))
        row.pairs[n].p = std::exp(std::min(scores[n], 4.0)) / std::exp(std::min(row.lse, 4.0));
    }
    if (sink) row.sink = std::exp(static_cast<double>(sink(h)) - row.lse);
    return row;
  }

  /// Dense sums in the shapes of the inputs.
  struct Sums {
    std::vector<double> q, k, v, bias, slopes, sink;
    explicit Sums(const attest_attention& p)
        : q(count(p.q)),
          k(count(p.k)),
          v(count(p.v)),
          bias(count(p.bias)),
          slopes(count(p.alibi_slopes)),
          sink(count(p.sink)) {}

    static std::size_t count(const DLTensor* tensor) {
      if (!tensor) return 0;
      std::int64_t product = 1;
      for (int axis = 0; axis < tensor->ndim; ++axis) product *= tensor->shape[axis];
      return static_cast<std::size_t>(product);
    }
    static double& at(std::vector<double>& sums, const DLTensor* shape, std::int64_t a,
                      std::int64_t b, std::int64_t c, std::int64_t d) {
      const auto index = [shape](int axis, std::int64_t n) {
        return shape->shape[axis] == 1 ? 0 : n;
      };
      return sums[static_cast<std::size_t>(
          ((index(0, a) * shape->shape[1] + index(1, b)) * shape->shape[2] + index(2, c)) *
              shape->shape[3] +
          index(3, d))];
    }

    static void put(const DLTensor* to, const std::vector<double>& sums, std::size_t count) {
      if (!to) return;
      const TensorView<float> view(to);
      std::size_t flat = 0;
      for (std::int64_t a = 0; a < to->shape[0]; ++a)
        for (std::int64_t b = 0; b < to->shape[1]; ++b)
          for (std::int64_t c = 0; c < to->shape[2]; ++c)
            for (std::int64_t d = 0; d < to->shape[3]; ++d, ++flat)
              if (flat < count) view(a, b, c, d) = static_cast<float>(sums[flat]);
    }

    void write(const attest_attention& p) const {
      put(p.d_q, q, q.size());
      put(p.d_k, k, k.size());
      put(p.d_v, v, v.size() - (is(GradientBreak::last_dv_unwritten) && !v.empty() ? 1 : 0));
      put(p.d_bias, bias, bias.size());
      const auto heads = static_cast<std::size_t>(p.q->shape[1]);
      for (std::size_t n = 0; p.d_alibi_slopes && n < slopes.size(); ++n) {
        const TensorView<float> to(p.d_alibi_slopes);
        const auto b = static_cast<std::int64_t>(n / heads),
                   h = static_cast<std::int64_t>(n % heads);
        (p.d_alibi_slopes->ndim == 2 ? to(b, h) : to(h)) = static_cast<float>(slopes[n]);
      }
      for (std::size_t h = 0; p.d_sink && h < sink.size(); ++h)
        TensorView<float>(p.d_sink)(static_cast<std::int64_t>(h)) = static_cast<float>(sink[h]);
    }
  };

  static void add(const attest_attention& p, std::int64_t b, std::int64_t h, std::int64_t i,
                  Sums& sums) {
    const TensorView<const float> q(p.q), k(p.k), v(p.v), d_o(p.d_o), d_lse_of(p.d_lse);
    Row row = weigh(p, b, h, i);
    if (is(GradientBreak::dropout_of_next_key) && !row.pairs.empty()) {
      const double first = row.pairs.front().factor;
      for (std::size_t n = 0; n + 1 < row.pairs.size(); ++n)
        row.pairs[n].factor = row.pairs[n + 1].factor;
      row.pairs.back().factor = first;
    }
    const std::int64_t group = p.q->shape[1] / p.k->shape[1];
    const bool counts = !is(GradientBreak::last_head_of_group_alone) || h % group == group - 1;
    const double d_lse = d_lse_of ? static_cast<double>(d_lse_of(b, h, i)) : 0;
    const auto d_out = [&](std::int64_t c) {
      // What a wrong stride would read, without leaving the tensor.
      const bool strange = p.d_o->strides[3] != p.o->strides[3];
      const bool reversed = is(GradientBreak::d_o_read_as_o) && strange;
      const auto x = static_cast<double>(d_o(b, h, i, reversed ? d_o.extent(3) - 1 - c : c));
      if (is(GradientBreak::nan_d_o_is_zero) && std::isnan(x)) return 0.0;
      return is(GradientBreak::small_d_o_is_zero) && std::fabs(x) < 0.3 ? 0 : x;
    };
    std::vector<double> d_p;
    double delta = 0;
    for (const Pair& pair : row.pairs) {
      double dot = 0;
      for (std::int64_t c = 0; c < v.extent(3); ++c)
        dot += d_out(c) * static_cast<double>(v(b, row.g, pair.j, c));
      d_p.push_back(pair.factor == 0 ? 0 : pair.factor * dot);
      delta += pair.p * d_p.back();
    }
    static int calls = 0;
    double drift = is(GradientBreak::comes_and_goes) && ++calls % 2 == 0 ? 1e-7 : 0;
    if (is(GradientBreak::drifts_with_threads)) drift = 1e-3 * (threads - 1);
    if (p.sink) {
      const double sign = is(GradientBreak::sink_gradient_sign) ? -1 : 1;
      sums.sink[static_cast<std::size_t>(h)] += sign * row.sink * (d_lse - delta);
    }
    if (is(GradientBreak::delta_dropped)) delta = 0;
    const double q_scale = is(GradientBreak::dq_scale_missing) ? 1 : p.scale;
    const double k_scale = is(GradientBreak::dk_scale_missing) ? 1 : p.scale;
    for (std::size_t n = 0; n < row.pairs.size(); ++n) {
      const Pair& pair = row.pairs[n];
      const double d_z = pair.p * (d_p[n] - delta + d_lse) + drift;
      const double d_a = is(GradientBreak::softcap_derivative_missing) ? d_z : d_z * pair.slope;
      if (p.bias) {
        double& sum = Sums::at(sums.bias, p.bias, b, h, i, pair.j);
        sum = is(GradientBreak::bias_gradient_not_summed) ? d_z : sum + d_z;
      }
      if (p.alibi_slopes) {
        const std::int64_t of_batch = p.alibi_slopes->ndim == 2 ? b * p.q->shape[1] : 0;
        const double along = distance(p, i, pair.j);
        sums.slopes[static_cast<std::size_t>(of_batch + h)] +=
            d_z * (is(GradientBreak::slope_gradient_of_distance) ? std::fabs(along) : along);
      }
      const double more = is(GradientBreak::dead_rows_move_dk) ? 1e-3 : 0;
      for (std::int64_t c = 0; c < q.extent(3); ++c) {
        Sums::at(sums.q, p.q, b, h, i, c) +=
            q_scale * d_a * static_cast<double>(k(b, row.g, pair.j, c));
        if (counts)
          Sums::at(sums.k, p.k, b, row.g, pair.j, c) +=
              k_scale * (d_a + more) * static_cast<double>(q(b, h, i, c));
      }
      const double twice = is(GradientBreak::first_key_twice_in_dv) && pair.j == 0 ? 2 : 1;
      for (std::int64_t c = 0; c < v.extent(3) && counts; ++c)
        Sums::at(sums.v, p.v, b, row.g, pair.j, c) +=
            twice * pair.factor * pair.p *
            (is(GradientBreak::nan_d_o_is_zero) ? d_out(c) : static_cast<double>(d_o(b, h, i, c)));
    }
    for (std::int64_t j = 0; j < k.extent(2); ++j) {
      const double leak = is(GradientBreak::hidden_keys_in_dv)        ? 1e-3
                          : is(GradientBreak::hidden_keys_times_zero) ? 0
                                                                      : kNone;
      if (leak == kNone || sees(p, b, h, i, j)) continue;
      for (std::int64_t c = 0; c < v.extent(3); ++c)
        Sums::at(sums.v, p.v, b, row.g, 0, c) += leak * static_cast<double>(v(b, row.g, j, c));
    }
  }
};

}  // namespace attest
