// SPDX-License-Identifier: Apache-2.0
// The tolerance against honest kernels: float arithmetic done in the ways that real kernels do it,
// feature by feature, must stay within min(T_M, T_S) - and not so far within that the tolerance
// says nothing. The families are the ones that the derivation of each term fears.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "reference/expected.hpp"
#include "reference/honest_kernel.hpp"

namespace attest {
namespace {

using namespace testing_support;

/// Largest err / T, and of f32 alone: in the 16-bit types it is that of the output rounding.
struct Ratios {
  double o = 0, lse = 0, o_f32 = 0, lse_f32 = 0;
};

void measure(const AttentionProblem& problem, const AttentionInputs& inputs, const Style& style,
             const std::string& name, Ratios& ratios) {
  const Expected expected = expect(problem, inputs, profile_of(problem, style));
  const auto channels = static_cast<std::size_t>(problem.v_head_dim);
  const Rows rows = rows_of(problem, 0);
  std::size_t row = 0;
  for (std::int64_t h = 0; h < problem.num_heads; ++h)
    for (std::int64_t i = 0; i < problem.q_len; ++i, ++row) {
      if (expected.rows[row] != RowKind::ordinary) continue;
      std::vector<float> o;
      float lse = 0;
      Kernel{problem, inputs, style, 0, h, i, rows}.run(o, lse);
      const auto ratio = [&](const ExpectedTensor& tensor, std::size_t at, double actual) {
        const double tolerance = std::min(tensor.t_mixed[at], tensor.t_stat[at]);
        const double error = std::fabs(actual - tensor.value[at]);
        EXPECT_LE(error, tolerance) << name << " row " << row << " element " << at;
        return error / tolerance;
      };
      double worst = 0;
      for (std::size_t c = 0; c < channels; ++c)
        worst = std::max(worst, ratio(expected.o, row * channels + c, o[c]));
      const double worst_lse = ratio(expected.lse, row, lse);
      ratios.o = std::max(ratios.o, worst);
      ratios.lse = std::max(ratios.lse, worst_lse);
      if (problem.dtype != DType::f32) continue;
      ratios.o_f32 = std::max(ratios.o_f32, worst);
      ratios.lse_f32 = std::max(ratios.lse_f32, worst_lse);
    }
}

using Feature = std::function<void(AttentionProblem&, Style&)>;

/// Runs every family and several styles; `feature` adds what is tested.
void run(const std::string& name, const Feature& feature,
         std::vector<DType> dtypes = {DType::f32, DType::bf16, DType::f16}) {
  Ratios ratios;
  std::uint64_t seed = 0;
  for (const DType dtype : dtypes)
    for (const HardData family : kHardData)
      for (int variant = 0; variant < 6; ++variant, ++seed) {
        AttentionProblem problem;
        problem.dtype = dtype;
        problem.num_heads = 3;
        problem.q_len = 4;
        problem.kv_len = 60 + 67 * (variant % 3);
        problem.head_dim = 16 << (variant % 2);
        problem.v_head_dim = 8;
        problem.base = variant % 2 ? Base::causal : Base::full;
        Style style;
        style.block = std::vector<int>{64, 1, 16, 128, 8, 32}[static_cast<std::size_t>(variant)];
        style.backwards = variant == 4;
        style.exp2 = variant % 2 == 0;
        style.lanes = variant % 3 == 0;
        style.rounds_p = dtype != DType::f32;
        style.keep_last = variant % 3 == 1;
        feature(problem, style);
        measure(problem, inputs_of(problem, family, seed), style,
                name + " family " + std::to_string(static_cast<int>(family)) + " variant " +
                    std::to_string(variant) + " " + std::string(attest::name(dtype)),
                ratios);
      }
  ::testing::Test::RecordProperty("largest ratio of o", std::to_string(ratios.o));
  ::testing::Test::RecordProperty("largest ratio of lse", std::to_string(ratios.lse));
  // Not so wide that it says nothing: f32 shows it, where no output rounding hides the arithmetic.
  if (std::find(dtypes.begin(), dtypes.end(), DType::f32) != dtypes.end()) {
    EXPECT_GT(ratios.o_f32, 0.05) << name;
    EXPECT_GT(ratios.lse_f32, 0.02) << name;
  }
}

TEST(HonestKernels, Plain) {
  run("plain", [](auto&, auto&) {});
}

TEST(HonestKernels, TruncatingAccumulators) {
  run("truncating", [](auto&, Style& style) { style.accumulator = Accumulator::truncating; });
}

TEST(HonestKernels, HalfAccumulators) {
  run("half", [](auto&, Style& style) { style.accumulator = Accumulator::half; }, {DType::f16});
}

TEST(HonestKernels, LFromRoundedP) {
  run("l from rounded P", [](auto&, Style& style) { style.l_from_rounded = true; },
      {DType::bf16, DType::f16});
}

TEST(HonestKernels, Dropout) {
  for (const double p : {0.1, 0.5, 0.9})
    run("dropout", [p](AttentionProblem& problem, auto&) { problem.dropout_p = p; });
}

TEST(HonestKernels, AlibiInTheKernel) {
  for (const AlibiKind kind : {AlibiKind::absolute, AlibiKind::signed_, AlibiKind::key_anchored})
    for (const bool inside : {false, true})
      run("alibi", [=](AttentionProblem& problem, auto&) {
        problem.alibi = kind;
        problem.alibi_inside_softcap = inside;
        problem.align = Align::q_offset;
        problem.q_offset = {500};
        if (inside) problem.softcap = 15;
      });
}

TEST(HonestKernels, AlibiAndBias) {
  run("alibi and bias", [](AttentionProblem& problem, auto&) {
    problem.alibi = AlibiKind::signed_;
    problem.bias = BiasKind::normal;
  });
}

TEST(HonestKernels, Softcap) {
  run("softcap", [](AttentionProblem& problem, auto&) { problem.softcap = 5; });
}

TEST(HonestKernels, Sink) {
  run("sink", [](AttentionProblem& problem, auto&) { problem.sink = SinkKind::normal; });
}

TEST(HonestKernels, RopeInTheKernel) {
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved})
    run("rope", [pairing](AttentionProblem& problem, auto&) {
      problem.rope = pairing;
      problem.align = Align::q_offset;
      problem.q_offset = {1000};
    });
}

TEST(HonestKernels, InputsRoundedToTf32) {
  run("tf32", [](auto&, Style& style) { style.tf32 = true; }, {DType::f32});
}

/// Values below the smallest normal number lose a fixed amount to rounding, not a relative one.
TEST(HonestKernels, SubnormalValuesRoundedToTf32) {
  AttentionProblem problem;
  problem.q_len = 3, problem.kv_len = 5, problem.head_dim = 4, problem.v_head_dim = 16;
  Style style;
  style.tf32 = true;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    AttentionInputs inputs = testing_support::random_inputs(problem, seed);
    for (double& v : inputs.v.values) v = round_to(DType::f32, std::ldexp(v, -130));
    Ratios ratios;
    measure(problem, inputs, style, "seed " + std::to_string(seed), ratios);
  }
}

TEST(HonestKernels, LargeTermsThatCancel) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const auto [problem, style] = cancelling_case(seed);
    Ratios ratios;
    measure(problem, cancelling_inputs(problem, seed), style, "seed " + std::to_string(seed),
            ratios);
    judged += ratios.lse > 0;
  }
  EXPECT_GT(judged, 15000);
}

TEST(HonestKernels, PartsMergedThroughTheirLse) {
  for (const int parts : {2, 4, 7})
    run("merged", [parts](auto&, Style& style) { style.parts = parts; });
  // Scores whose lse has lost digits, equal or with one key ahead: the weights of the parts err
  // by u |lse|, all in one direction, also where every v is the same.
  run("large scores", [](AttentionProblem& problem, Style& style) {
    style.parts = 5;
    problem.scale = 40;
  });
  run("sink", [](AttentionProblem& problem, Style& style) {
    style.parts = 4;
    problem.sink = SinkKind::normal;
  });
}

}  // namespace
}  // namespace attest
