// SPDX-License-Identifier: Apache-2.0
// The analytic gradients against two things that know nothing of them: automatic differentiation of
// the forward definition (Boost.Math autodiff), and central differences of it in 100 digits.
#include "reference/gradients.hpp"

#include <gtest/gtest.h>

#include <boost/math/differentiation/autodiff.hpp>

#include "attest/case_line.hpp"
#include "reference/multiprecision.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::Random;
using testing_support::random_problem;

/// dO.o + dLSE lse over the rows that hold anything: what dO and dLSE are gradients of.
template <Number T>
T loss(const AttentionProblem& problem, const AttentionInputs& inputs,
       const RealTensors<T>& values) {
  T sum(0.0);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        const auto row = forward_row<T, T>(problem, inputs, values, rows, b, h, i);
        if (row.kind != RowKind::ordinary && row.kind != RowKind::empty_sink) continue;
        for (std::size_t c = 0; c < row.o.size(); ++c)
          sum += T(inputs.d_o.at(b, h, i, static_cast<std::int64_t>(c))) * row.o[c];
        sum += T(d_lse_at(inputs, b, h, i)) * row.lse;
      }
  }
  return sum;
}

/// Every tensor of `inputs` as T.
template <Number T>
RealTensors<T> values_of(const AttentionInputs& inputs) {
  RealTensors<T> values = zero_gradients<T>(inputs);
  const auto copy = [](const Dense<double>& from, Dense<T>& to) {
    for (std::size_t x = 0; x < from.values.size(); ++x) to.values[x] = T(from.values[x]);
  };
  copy(inputs.q, values.q), copy(inputs.k, values.k), copy(inputs.v, values.v);
  copy(inputs.bias, values.bias), copy(inputs.slopes, values.slopes);
  copy(inputs.sink, values.sink);
  return values;
}

template <class T>
std::vector<Dense<T>*> tensors_of(RealTensors<T>& tensors) {
  return {&tensors.q, &tensors.k, &tensors.v, &tensors.bias, &tensors.slopes, &tensors.sink};
}
constexpr const char* kNames[] = {"dQ", "dK", "dV", "dBias", "dSlope", "dSink"};

struct Case {
  AttentionProblem problem;
  AttentionInputs inputs;
};

/// A small problem over all features. Finite mask values leave the domain of judged gradients.
Case random_case(std::uint64_t seed) {
  AttentionProblem problem = random_problem(seed);
  if (problem.bias == BiasKind::lowest) problem.bias = BiasKind::neg_inf;
  return {problem, testing_support::random_backward_inputs(problem, seed)};
}

constexpr std::uint64_t kCases = 2000;

/// |a - b| <= 10^-digits (1 + |b|).
template <class T>
::testing::AssertionResult agree(const Mpfr50& a, const T& b, const char* bound) {
  const T difference = abs(T(a.str(60, std::ios_base::scientific)) - b);
  if (difference <= T(bound) * (1 + abs(b))) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << a << " and " << b;
}

/// Central differences: h = 1e-30 leaves h^2 = 1e-60 of truncation and 1e-100 / h = 1e-70 of
/// rounding.
TEST(Gradients, AgreeWithCentralDifferencesTo40Digits) {
  const Mpfr100 h("1e-30");
  int compared = 0;
  for (std::uint64_t seed = 0; seed < kCases / 10; ++seed) {
    const auto [problem, inputs] = random_case(seed);
    RealTensors<Mpfr50> analytic = gradients<Mpfr50>(problem, inputs);
    RealTensors<Mpfr100> values = values_of<Mpfr100>(inputs);
    Random random(seed);
    for (std::size_t tensor = 0; tensor < 6; ++tensor) {
      Dense<Mpfr100>& moved = *tensors_of(values)[tensor];
      for (int n = 0; n < 3 && !moved.values.empty(); ++n) {
        const auto at = static_cast<std::size_t>(
            random.between(0, static_cast<std::int64_t>(moved.values.size()) - 1));
        const Mpfr100 middle = moved.values[at];
        if (isinf(middle)) continue;
        moved.values[at] = middle + h;
        const Mpfr100 above = loss(problem, inputs, values);
        moved.values[at] = middle - h;
        const Mpfr100 below = loss(problem, inputs, values);
        moved.values[at] = middle;
        const Mpfr100 slope = (above - below) / (2 * h);
        ASSERT_TRUE(agree(tensors_of(analytic)[tensor]->values[at], slope, "1e-40"))
            << kNames[tensor] << "[" << at << "] of " << print_case(problem);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 1500);
}

/// Along a random direction in one tensor at a time.
TEST(Gradients, AgreeWithAutomaticDifferentiationTo40Digits) {
  using Dual = boost::math::differentiation::autodiff_fvar<BinFloat50, 1>;
  const auto variable = [](const BinFloat50& x, const BinFloat50& slope) {
    return Dual(x) +
           Dual(slope) * boost::math::differentiation::make_fvar<BinFloat50, 1>(BinFloat50(0));
  };
  int compared = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const auto [problem, inputs] = random_case(seed);
    RealTensors<Mpfr50> analytic = gradients<Mpfr50>(problem, inputs);
    Random random(seed);
    for (std::size_t tensor = 0; tensor < 6; ++tensor) {
      RealTensors<Dual> values = values_of<Dual>(inputs);
      Dense<Dual>& moved = *tensors_of(values)[tensor];
      if (moved.values.empty()) continue;
      Mpfr50 expected(0);
      for (std::size_t x = 0; x < moved.values.size(); ++x) {
        const double along(random.value());
        const BinFloat50 here(moved.values[x].derivative(0));
        if (isinf(here)) continue;
        moved.values[x] = variable(here, along);
        expected += along * tensors_of(analytic)[tensor]->values[x];
      }
      const BinFloat50 slope = loss(problem, inputs, values).derivative(1);
      ASSERT_TRUE(agree(expected, slope, "1e-40"))
          << kNames[tensor] << " of " << print_case(problem);
      ++compared;
    }
  }
  EXPECT_GT(compared, 8000);
}

}  // namespace
}  // namespace attest
