// SPDX-License-Identifier: Apache-2.0
// The fast gradients against the definition: within their radius, and that far below the tolerance.
#include <gtest/gtest.h>

#include <cmath>

#include "attest/case_line.hpp"
#include "reference/definition.hpp"
#include "reference/expected.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::random_backward_inputs;
using testing_support::random_problem;

constexpr const char* kNames[] = {"dQ", "dK", "dV", "dBias", "dSlope", "dSink"};

PrecisionProfile profile_of(DType dtype) {
  return *precision_preset(dtype == DType::f32 ? "f32" : "mma_f32acc", dtype);
}

struct Worst {
  double error_over_radius = 0, radius_over_tolerance = 0;
  std::int64_t judged = 0, spoilt = 0;
};

void compare(const AttentionProblem& problem, const AttentionInputs& inputs, Worst& worst) {
  const Expected expected = expect(problem, inputs, profile_of(problem.dtype));
  const RealTensors<ExactNumber> exact = definition_gradients(problem, inputs);
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const ExpectedTensor& fast = expected.gradients[n];
    const Dense<ExactNumber>& slow = tensor_of(exact, static_cast<Gradient>(n));
    ASSERT_EQ(fast.value.size(), slow.values.size());
    for (std::size_t x = 0; x < fast.value.size(); ++x) {
      if (std::isinf(fast.t_mixed[x])) {
        ++worst.spoilt;
        continue;
      }
      const ExactNumber& number = slow.values[x];
      const double error = std::fabs((fast.value[x] - number.high) + (fast.low[x] - number.low));
      ASSERT_LE(error, fast.radius[x]) << kNames[n] << "[" << x << "] of " << print_case(problem);
      ++worst.judged;
      if (error > 0)
        worst.error_over_radius = std::max(worst.error_over_radius, error / fast.radius[x]);
      const double tolerance = std::min(fast.t_mixed[x], fast.t_stat[x]);
      if (fast.radius[x] > 0)
        worst.radius_over_tolerance =
            std::max(worst.radius_over_tolerance, fast.radius[x] / tolerance);
    }
  }
}

TEST(BackwardFast, WithinItsRadiusOfTheDefinition) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Worst worst;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      AttentionProblem problem = random_problem(seed);
      problem.dtype = dtype;
      compare(problem, random_backward_inputs(problem, seed), worst);
      if (HasFailure()) return;
    }
    RecordProperty(std::string(name(dtype)) + " error/radius",
                   std::to_string(worst.error_over_radius));
    RecordProperty(std::string(name(dtype)) + " radius/T",
                   std::to_string(worst.radius_over_tolerance));
    EXPECT_LT(worst.radius_over_tolerance, dtype == DType::f64 ? 0.1 : 1e-3) << name(dtype);
    EXPECT_GT(worst.error_over_radius, 1e-4);
    EXPECT_GT(worst.judged, 10000);
    EXPECT_LT(worst.spoilt, worst.judged / 5);
  }
}

// A weight of exp(-746) is 0 in double, but no dropped one: a kernel may find the smallest number.
TEST(BackwardFast, AllowsAWeightThatUnderflows) {
  AttentionProblem problem;
  problem.operation = Operation::backward;
  problem.dtype = DType::f64;
  problem.kv_len = 2;
  problem.bias = BiasKind::normal;
  AttentionInputs inputs = random_backward_inputs(problem, 1);
  inputs.bias.values = {0, -746};
  for (double& x : inputs.q.values) x = 0;
  const Expected expected = expect(problem, inputs, profile_of(problem.dtype));
  const ExpectedTensor& d_v = expected.gradients[static_cast<std::size_t>(Gradient::v)];
  EXPECT_EQ(d_v.value[1], 0);
  EXPECT_GE(d_v.t_mixed[1], 0x1p-1074);
}

/// dQ of one query and two keys at scale 1 and a cap of 1, in T, by 1 - tanh^2 of the score.
template <class T>
double d_q_by_tanh(const AttentionInputs& inputs) {
  const auto q = static_cast<T>(inputs.q.values[0]), d_o = static_cast<T>(inputs.d_o.values[0]);
  T k[2], d_p[2], t[2], e[2];
  for (std::size_t j = 0; j < 2; ++j) {
    k[j] = static_cast<T>(inputs.k.values[j]);
    d_p[j] = d_o * static_cast<T>(inputs.v.values[j]);
    const T capped = std::tanh(q * k[j]);
    t[j] = 1 - capped * capped;
    e[j] = std::exp(capped - 1);
  }
  const T sum = e[0] + e[1], p[2] = {e[0] / sum, e[1] / sum};
  const T delta = p[0] * d_p[0] + p[1] * d_p[1];
  return static_cast<double>(p[0] * (d_p[0] - delta) * t[0] * k[0] +
                             p[1] * (d_p[1] - delta) * t[1] * k[1]);
}

// 1 - tanh^2 is 0 in double from 19 on, and a subnormal number of its own from 354 to 372: there
// its distance to any other number of that size is 0, which was taken for none to be allowed.
TEST(BackwardFast, AllowsASlopeThatSaturatesOrUnderflows) {
  Worst worst;
  for (const DType dtype : {DType::f64, DType::f32})
    for (int step = 1; step < 1600; ++step) {
      const double x = step / 4.0;
      AttentionProblem problem;
      problem.operation = Operation::backward;
      problem.dtype = dtype;
      problem.kv_len = 2;
      problem.scale = 1;
      problem.softcap = 1;
      AttentionInputs inputs = random_backward_inputs(problem, 1);
      inputs.q.values = {x}, inputs.k.values = {1, 1.5};
      inputs.v.values = {0, 0x1p90}, inputs.d_o.values = {1};
      compare(problem, inputs, worst);
      ASSERT_FALSE(HasFailure()) << x;
      const Expected expected = expect(problem, inputs, profile_of(dtype));
      const ExpectedTensor& d_q = expected.gradients[static_cast<std::size_t>(Gradient::q)];
      const double kernel =
          dtype == DType::f64 ? d_q_by_tanh<double>(inputs) : d_q_by_tanh<float>(inputs);
      EXPECT_LE(std::fabs(kernel - d_q.value[0]), std::min(d_q.t_mixed[0], d_q.t_stat[0]))
          << name(dtype) << " x = " << x << ": " << kernel << " beside " << d_q.value[0];
    }
}

}  // namespace
}  // namespace attest
