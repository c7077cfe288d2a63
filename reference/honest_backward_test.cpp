// SPDX-License-Identifier: Apache-2.0
// The tolerance of gradients against honest kernels: the backward pass in float, from the kernel's
// own o and lse, in the ways that real kernels do it.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "attest/case_line.hpp"
#include "reference/expected.hpp"
#include "reference/honest_kernel.hpp"

namespace attest {
namespace {

using namespace testing_support;

constexpr const char* kNames[] = {"dQ", "dK", "dV", "dBias", "dSlope", "dSink"};

struct BackwardStyle {
  Style forward;
  bool stores_p = false;       ///< P as the softmax gave it, and delta = sum P dP
  bool rows_reversed = false;  ///< dK and dV take the last query first
  bool scales_at_end = true;   ///< scale times the sum, in place of times every dS
};

/// Batch 0 of a problem.
class BackwardKernel {
 public:
  BackwardKernel(const AttentionProblem& problem, const AttentionInputs& inputs,
                 const BackwardStyle& style)
      : p_(problem), in_(inputs), style_(style), rows_(rows_of(problem, 0)), grads_(zeros()) {}

  RealTensors<float> run() {
    for (std::int64_t h = 0; h < p_.num_heads; ++h)
      for (std::int64_t n = 0; n < p_.q_len; ++n)
        add_row(h, style_.rows_reversed ? p_.q_len - 1 - n : n);
    const float scale = style_.scales_at_end ? static_cast<float>(effective_scale(p_)) : 1;
    finish(grads_.q, scale, true), finish(grads_.k, scale, false);
    for (Dense<float>* tensor : {&grads_.q, &grads_.k, &grads_.v, &grads_.bias})
      for (float& x : tensor->values) x = static_cast<float>(round_to(p_.dtype, x));
    return grads_;
  }

 private:
  static Dense<float> like(const Dense<double>& tensor) {
    return tensor.present ? Dense<float>(tensor.shape) : Dense<float>();
  }
  RealTensors<float> zeros() const {
    return {like(in_.q),    like(in_.k),      like(in_.v),
            like(in_.bias), like(in_.slopes), like(in_.sink)};
  }
  float narrow(float x) const {
    return style_.forward.rounds_p ? static_cast<float>(round_to(p_.dtype, x)) : x;
  }

  void add_row(std::int64_t h, std::int64_t i) {
    if (!rows_.real_query(i)) return;
    const Kernel kernel{p_, in_, style_.forward, 0, h, i, rows_};
    const std::vector<std::int64_t> keys = kernel.keys_of_row();
    const double d_lse = in_.d_lse.present ? in_.d_lse.at(0, h, i, 0) : 0;
    const double sink = sink_at(in_, h);
    const bool has_sink = sink != -std::numeric_limits<double>::infinity();
    if (keys.empty()) {
      if (has_sink) grads_.sink.at(0, h, 0, 0) += static_cast<float>(d_lse);
      return;
    }
    std::vector<float> o;
    float lse = 0;
    kernel.run(o, lse);
    const std::int64_t g = kv_head(p_, h), query_position = qpos(rows_.of_query(i), i);
    const std::vector<float> q = kernel.row_of(in_.q, h, i, query_position);
    const std::vector<float> d_o = kernel.row_of(in_.d_o, h, i, 0);
    const float factor = static_cast<float>(1 / (1 - p_.dropout_p));
    const float unit = style_.forward.exp2 ? static_cast<float>(kLog2E) : 1.0f;

    std::vector<float> weights, d_p;
    float delta = 0, mass = has_sink ? std::exp(static_cast<float>(sink) - lse) : 0;
    for (const std::int64_t j : keys) {
      weights.push_back(kernel.power(kernel.score(q, j) - lse * unit));
      mass += weights.back();
    }
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const std::int64_t j = keys[n];
      if (style_.stores_p) weights[n] /= mass;
      const bool kept = !in_.keep.present || in_.keep.at(0, h, i, j) != 0;
      const float dot = kernel.dot(d_o, kernel.row_of(in_.v, g, j, 0));
      d_p.push_back(!kept ? 0 : in_.keep.present ? dot * factor : dot);
      if (style_.stores_p) delta += weights[n] * d_p[n];
      const float stored = kept ? narrow(in_.keep.present ? weights[n] * factor : weights[n]) : 0;
      for (std::size_t c = 0; c < d_o.size(); ++c) {
        float& sum = grads_.v.at(0, g, j, static_cast<std::int64_t>(c));
        sum = kernel.accumulated(static_cast<double>(sum) + static_cast<double>(stored) * d_o[c]);
      }
    }
    if (!style_.stores_p)
      for (std::size_t c = 0; c < o.size(); ++c)
        delta = kernel.add(
            delta, static_cast<float>(in_.d_o.at(0, h, i, static_cast<std::int64_t>(c))) * o[c]);
    if (has_sink)
      grads_.sink.at(0, h, 0, 0) +=
          std::exp(static_cast<float>(sink) - lse) * (static_cast<float>(d_lse) - delta);
    for (std::size_t n = 0; n < keys.size(); ++n)
      add_pair(kernel, h, i, keys[n], q, weights[n] * (d_p[n] - delta + static_cast<float>(d_lse)));
  }

  float slope(const Kernel& kernel, const std::vector<float>& q, std::int64_t h, std::int64_t i,
              std::int64_t j) const {
    if (!(p_.softcap > 0)) return 1;
    const std::int64_t qp = qpos(rows_.of_query(i), i), kp = kpos(rows_.of_key(j), j);
    float a = kernel.dot(q, kernel.row_of(in_.k, kv_head(p_, h), j, kp)) *
              static_cast<float>(effective_scale(p_));
    if (p_.alibi_inside_softcap)
      a += static_cast<float>(slope_at(in_, 0, h)) *
           static_cast<float>(alibi_term(p_.alibi, 1.0, qp, kp));
    const float t = std::tanh(a / static_cast<float>(p_.softcap));
    return 1 - t * t;
  }

  void add_pair(const Kernel& kernel, std::int64_t h, std::int64_t i, std::int64_t j,
                const std::vector<float>& q, float d_z) {
    const std::int64_t g = kv_head(p_, h);
    const std::int64_t qp = qpos(rows_.of_query(i), i), kp = kpos(rows_.of_key(j), j);
    const float d_a = d_z * slope(kernel, q, h, i, j);
    if (in_.bias.present) grads_.bias.values[in_.bias.broadcast_index(0, h, i, j)] += d_z;
    if (in_.slopes.present)
      grads_.slopes.values[in_.slopes.broadcast_index(0, h, 0, 0)] +=
          (p_.alibi_inside_softcap ? d_a : d_z) *
          static_cast<float>(alibi_term(p_.alibi, 1.0, qp, kp));
    const float factor = style_.scales_at_end ? 1 : static_cast<float>(effective_scale(p_));
    const float stored = narrow(d_a * factor);
    const std::vector<float> k = kernel.row_of(in_.k, g, j, kp);
    for (std::size_t c = 0; c < q.size(); ++c) {
      const auto channel = static_cast<std::int64_t>(c);
      float& to_q = grads_.q.at(0, h, i, channel);
      to_q = kernel.accumulated(static_cast<double>(to_q) + static_cast<double>(stored) * k[c]);
      float& to_k = grads_.k.at(0, g, j, channel);
      to_k = kernel.accumulated(static_cast<double>(to_k) + static_cast<double>(stored) * q[c]);
    }
  }

  /// The scale, and the rotation back.
  void finish(Dense<float>& gradient, float scale, bool of_queries) const {
    for (float& x : gradient.values) x *= scale;
    if (p_.rope == RopePairing::none) return;
    const std::int64_t half = effective_rope_dim(p_) / 2;
    for (std::int64_t h = 0; h < gradient.shape[1]; ++h)
      for (std::int64_t row = 0; row < gradient.shape[2]; ++row) {
        if (of_queries ? !rows_.real_query(row) : !rows_.real_key(row)) continue;
        const std::int64_t position =
            of_queries ? qpos(rows_.of_query(row), row) : kpos(rows_.of_key(row), row);
        for (std::int64_t t = 0; t < half; ++t) {
          const bool interleaved = p_.rope == RopePairing::interleaved;
          float& x = gradient.at(0, h, row, interleaved ? 2 * t : t);
          float& y = gradient.at(0, h, row, interleaved ? 2 * t + 1 : t + half);
          const RopeAngle angle = rope_angle(p_, position, t);
          const auto cos = static_cast<float>(angle.cos_high),
                     sin = static_cast<float>(angle.sin_high);
          const float turned = x * cos + y * sin;
          y = y * cos - x * sin;
          x = turned;
        }
      }
  }

  const AttentionProblem& p_;
  const AttentionInputs& in_;
  const BackwardStyle& style_;
  const Rows rows_;
  RealTensors<float> grads_;
};

struct Ratios {
  double worst[kNumGradients] = {};
  std::int64_t judged = 0;
};

void measure(const AttentionProblem& problem, const AttentionInputs& inputs,
             const BackwardStyle& style, const std::string& where, Ratios& ratios) {
  const Expected expected = expect(problem, inputs, profile_of(problem, style.forward));
  const RealTensors<float> actual = BackwardKernel(problem, inputs, style).run();
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const ExpectedTensor& tensor = expected.gradients[n];
    const std::vector<float>& values = tensor_of(actual, static_cast<Gradient>(n)).values;
    for (std::size_t x = 0; x < tensor.value.size(); ++x) {
      const double tolerance = std::min(tensor.t_mixed[x], tensor.t_stat[x]);
      if (std::isinf(tolerance)) continue;
      const double error = std::fabs(values[x] - tensor.value[x]);
      EXPECT_LE(error, tolerance) << kNames[n] << "[" << x << "] of " << where << " exact "
                                  << tensor.value[x] << " T_M " << tensor.t_mixed[x];
      ++ratios.judged;
      if (error > 0) ratios.worst[n] = std::max(ratios.worst[n], error / tolerance);
    }
  }
}

void add_cotangents(const AttentionProblem& p, std::uint64_t seed, AttentionInputs& inputs) {
  Random random(seed ^ 0xd0);
  inputs.d_o = Dense<double>({1, p.num_heads, p.q_len, p.v_head_dim});
  for (double& x : inputs.d_o.values) x = round_to(p.dtype, bell(random));
  if (seed % 2 == 0) return;
  inputs.d_lse = Dense<double>({1, p.num_heads, p.q_len, 1});
  for (double& x : inputs.d_lse.values) x = round_to(DType::f32, bell(random));
}

using Feature = std::function<void(AttentionProblem&, BackwardStyle&)>;

void run(const std::string& name, const Feature& feature,
         std::vector<DType> dtypes = {DType::f32, DType::bf16, DType::f16}) {
  Ratios ratios;
  std::uint64_t seed = 0;
  for (const DType dtype : dtypes)
    for (const HardData data : kHardData)
      for (int variant = 0; variant < 6; ++variant, ++seed) {
        AttentionProblem problem;
        problem.dtype = dtype;
        problem.num_heads = 4, problem.num_kv_heads = 2;
        problem.q_len = 5 + 4 * (variant % 3);
        problem.kv_len = 30 + 37 * (variant % 3);
        problem.head_dim = 16 << (variant % 2);
        problem.v_head_dim = 8;
        problem.base = variant % 2 ? Base::causal : Base::full;
        BackwardStyle style;
        style.forward.block =
            std::vector<int>{64, 1, 16, 128, 8, 32}[static_cast<std::size_t>(variant)];
        style.forward.exp2 = variant % 2 == 0;
        style.forward.lanes = variant % 3 == 0;
        style.forward.rounds_p = dtype != DType::f32;
        style.stores_p = variant == 5;
        style.rows_reversed = variant == 1;
        style.scales_at_end = variant % 2 == 1;
        feature(problem, style);
        AttentionInputs inputs = inputs_of(problem, data, seed);
        add_cotangents(problem, seed, inputs);
        measure(problem, inputs, style,
                name + " data " + std::to_string(static_cast<int>(data)) + " variant " +
                    std::to_string(variant) + " " + std::string(attest::name(dtype)),
                ratios);
      }
  for (std::size_t n = 0; n < kNumGradients; ++n)
    ::testing::Test::RecordProperty(kNames[n], std::to_string(ratios.worst[n]));
  EXPECT_GT(ratios.judged, 50000) << name;
}

TEST(HonestBackward, Plain) {
  run("plain", [](auto&, auto&) {});
}

TEST(HonestBackward, Truncating) {
  run("truncating",
      [](auto&, BackwardStyle& style) { style.forward.accumulator = Accumulator::truncating; });
}

TEST(HonestBackward, Dropout) {
  for (const double p : {0.1, 0.5})
    run("dropout", [p](AttentionProblem& problem, auto&) { problem.dropout_p = p; });
}

TEST(HonestBackward, SoftcapWithAlibiInside) {
  for (const bool inside : {false, true})
    run("softcap", [inside](AttentionProblem& problem, auto&) {
      problem.softcap = 5;
      problem.alibi = AlibiKind::signed_;
      problem.alibi_inside_softcap = inside;
    });
}

TEST(HonestBackward, BiasOverEveryBroadcast) {
  for (int axes = 0; axes < 8; ++axes)
    run("bias",
        [axes](AttentionProblem& problem, auto&) {
          problem.bias = BiasKind::normal;
          problem.bias_axes = {true, (axes & 1) != 0, (axes & 2) != 0, (axes & 4) != 0};
        },
        {DType::f32, DType::bf16});
}

TEST(HonestBackward, Sink) {
  run("sink", [](AttentionProblem& problem, auto&) { problem.sink = SinkKind::normal; });
}

TEST(HonestBackward, Rope) {
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved})
    run("rope", [pairing](AttentionProblem& problem, auto&) {
      problem.rope = pairing;
      problem.align = Align::q_offset;
      problem.q_offset = {1000};
    });
}

TEST(HonestBackward, Tf32) {
  for (const RopePairing pairing : {RopePairing::none, RopePairing::half})
    run("tf32",
        [pairing](AttentionProblem& problem, BackwardStyle& style) {
          style.forward.tf32 = true;
          problem.rope = pairing;
        },
        {DType::f32});
}

TEST(HonestBackward, LargeTermsThatCancel) {
  Ratios ratios;
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    const auto [problem, forward] = cancelling_case(seed);
    BackwardStyle style{forward};
    style.stores_p = seed % 3 == 0;
    style.scales_at_end = seed % 2 == 0;
    AttentionInputs inputs = cancelling_inputs(problem, seed);
    add_cotangents(problem, seed, inputs);
    measure(problem, inputs, style, "seed " + std::to_string(seed), ratios);
  }
  EXPECT_GT(ratios.judged, 100000);
}

}  // namespace
}  // namespace attest
