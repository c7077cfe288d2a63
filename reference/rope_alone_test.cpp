// SPDX-License-Identifier: Apache-2.0
// The oracle of the rotary embedding alone: against the definition, and what its tolerance allows.
#include "reference/rope_alone.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "attest/record.hpp"
#include "reference/audit.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

AttentionProblem example(DType dtype, RopePairing pairing) {
  AttentionProblem p;
  p.operation = Operation::rope;
  p.dtype = dtype;
  p.batch = 2;
  p.num_heads = p.num_kv_heads = 2;
  p.q_len = 3;
  p.head_dim = p.v_head_dim = 7;
  p.rope = pairing;
  p.positions = {0, 5, -3, 131071, 131072, 131080};
  return p;
}

AttentionInputs random_inputs(const AttentionProblem& p, double size = 1) {
  AttentionInputs inputs;
  inputs.q = Dense<double>({p.batch, p.num_heads, p.q_len, p.head_dim});
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (double& x : inputs.q.values) x = round_to(p.dtype, size * normal(random));
  return inputs;
}

PrecisionProfile plain(DType dtype) { return *precision_preset("f32", dtype); }

TEST(RopeAlone, AuditsWithinItsRadius) {
  for (const DType dtype : kAllDTypes)
    for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::half})
      for (const double size : {1.0, 1e-30, 1e-300, 0x1p-1070}) {
        AttentionProblem p = example(dtype, pairing);
        p.rope_scale = 4;
        p.rope_ntk = 2;
        p.rope_inverse = pairing == RopePairing::half;
        const AttentionInputs inputs = random_inputs(p, size);
        const Expected expected = expect(p, inputs, plain(dtype));
        Audit audit;
        audit_rows(p, inputs, expected, 3, 100, 1000000, audit);
        EXPECT_EQ(audit.outside, 0) << audit.first_outside;
        EXPECT_EQ(audit.rows, 12);
        EXPECT_LT(audit.worst_radius_over_tolerance, 0.5);
      }
}

TEST(RopeAlone, AWrongValueFailsTheAudit) {
  const AttentionProblem p = example(DType::f64, RopePairing::half);
  const AttentionInputs inputs = random_inputs(p);
  Expected expected = expect(p, inputs, plain(p.dtype));
  expected.o.low[8] += 0x1p-95;
  Audit audit;
  audit_rows(p, inputs, expected, 3, 100, 1000000, audit);
  EXPECT_EQ(audit.outside, 1);
}

TEST(RopeAlone, IsTheFormula) {
  AttentionProblem p = example(DType::f64, RopePairing::half);
  p.rope_dim = 4;
  p.positions = {1, 2, 3, 4, 5, 6};
  const AttentionInputs inputs = random_inputs(p);
  for (const bool inverse : {false, true}) {
    p.rope_inverse = inverse;
    const Expected expected = expect(p, inputs, plain(p.dtype));
    const auto x = [&](std::int64_t c) { return inputs.q.at(1, 0, 2, c); };
    const auto y = [&](std::int64_t c) { return expected.o.value[inputs.q.index(1, 0, 2, c)]; };
    const double direction = inverse ? -1 : 1;
    for (std::int64_t t = 0; t < 2; ++t) {
      const double theta = direction * 6 * (t == 0 ? 1 : 0.01);
      EXPECT_NEAR(y(t), x(t) * std::cos(theta) - x(t + 2) * std::sin(theta), 1e-14);
      EXPECT_NEAR(y(t + 2), x(t) * std::sin(theta) + x(t + 2) * std::cos(theta), 1e-14);
    }
    for (std::int64_t c = 4; c < 7; ++c) {
      EXPECT_EQ(y(c), x(c));
      EXPECT_EQ(tolerance_of(expected.o, inputs.q.index(1, 0, 2, c)), 0);
    }
  }
}

/// A plain kernel in float, from tables rounded to float.
TEST(RopeAlone, AllowsAPlainKernelAndLittleMore) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    AttentionProblem p = example(dtype, RopePairing::interleaved);
    p.q_len = 400;
    p.positions.clear();
    p.q_offset = {0, 100000};
    const AttentionInputs inputs = random_inputs(p);
    const Expected expected = expect(p, inputs, plain(dtype));
    double worst = 0, worst_cut = 0;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < p.q_len; ++i)
        for (std::int64_t t = 0; t < 3; ++t) {
          const RopeAngle angle = rope_angle(p, row_position(p, b, i), t);
          const auto c = static_cast<float>(angle.cos_high), s = static_cast<float>(angle.sin_high);
          const std::size_t first = inputs.q.index(b, 1, i, 2 * t);
          const auto x = static_cast<float>(inputs.q.values[first]),
                     y = static_cast<float>(inputs.q.values[first + 1]);
          const volatile float xc = x * c, ys = y * s;
          const float turned = xc - ys;
          const auto ratio = [&](double given) {
            return std::fabs(given - expected.o.value[first]) / tolerance_of(expected.o, first);
          };
          worst = std::max(worst, ratio(round_to(dtype, turned)));
          // Three numbers of the type further on.
          const double unit = 6 * limits(dtype).unit_roundoff * std::fabs(turned);
          worst_cut = std::max(worst_cut, ratio(round_to(dtype, turned) + unit));
        }
    EXPECT_LE(worst, 1) << name(dtype);
    EXPECT_GT(worst, 0.3) << name(dtype);
    EXPECT_GT(worst_cut, 1.5) << name(dtype);
  }
}

TEST(RopeAlone, RowsThatAreNotFiniteAreNotJudged) {
  const AttentionProblem p = example(DType::f32, RopePairing::half);
  AttentionInputs inputs = random_inputs(p);
  inputs.q.at(0, 1, 2, 6) = std::numeric_limits<double>::quiet_NaN();
  const Expected expected = expect(p, inputs, plain(p.dtype));
  for (std::size_t row = 0; row < expected.rows.size(); ++row)
    EXPECT_EQ(expected.rows[row], row == 5 ? RowKind::unspecified : RowKind::ordinary) << row;
}

}  // namespace
}  // namespace attest
