// SPDX-License-Identifier: Apache-2.0
// Double-double against 50 digits, on every SIMD target that this machine has.
#include <gtest/gtest.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/double_double_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that these are compiled for.
#include <hwy/highway.h>

#include "reference/double_double-inl.h"

#ifndef ATTEST_REFERENCE_DOUBLE_DOUBLE_TEST_ONCE
#define ATTEST_REFERENCE_DOUBLE_DOUBLE_TEST_ONCE
namespace attest {

enum class Function { add, multiply, divide, exp, expm1, tanh, log };
constexpr Function kFunctions[] = {Function::add, Function::multiply, Function::divide,
                                   Function::exp, Function::expm1,    Function::tanh,
                                   Function::log};

struct Operands {
  double a_high, a_low, b_high, b_low;
};
struct Outcome {
  double high, low;
};

}  // namespace attest
#endif

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

/// One operation in the first lane.
Outcome Evaluate(Function function, const Operands& x) {
  const hn::ScalableTag<double> d;
  const auto a = Constant(d, x.a_high, x.a_low), b = Constant(d, x.b_high, x.b_low);
  auto y = Constant(d, 0);
  switch (function) {
    case Function::add: y = Add(a, b); break;
    case Function::multiply: y = Multiply(d, a, b); break;
    case Function::divide: y = Divide(d, a, b); break;
    case Function::exp: y = Exp(d, a); break;
    case Function::expm1: y = Expm1Reduced(d, a); break;
    case Function::tanh: y = Tanh(d, a); break;
    case Function::log: y = Log(d, a); break;
  }
  return {hn::GetLane(y.high), hn::GetLane(y.low)};
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <vector>

#include "reference/multiprecision.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

HWY_EXPORT(Evaluate);

using Exact = Mpfr50;

Exact exact(Function function, const Operands& x) {
  const Exact a = Exact(x.a_high) + Exact(x.a_low), b = Exact(x.b_high) + Exact(x.b_low);
  switch (function) {
    case Function::add: return a + b;
    case Function::multiply: return a * b;
    case Function::divide: return a / b;
    case Function::exp: return exp(a);
    case Function::expm1: return expm1(a);
    case Function::tanh: return tanh(a);
    case Function::log: return log(a);
  }
  return 0;
}

/// What the header promises, relative to the result.
double promised(Function function, double a) {
  switch (function) {
    case Function::add:
    case Function::multiply:
    case Function::divide: return 0x1p-102;
    case Function::exp: return 0x1p-98 * (1 + std::fabs(a) / 16);
    case Function::expm1:
    case Function::tanh: return 0x1p-97;
    case Function::log: return 0x1p-98;
  }
  return 0;
}

double uniform(testing_support::Random& random) {
  return static_cast<double>(random.bits() >> 11) * 0x1p-53;
}

/// Any exponent in a wide range, any bits.
Operands operands(Function function, testing_support::Random& random) {
  const double sign = random.one_in(2) ? -1 : 1;
  Operands x{sign * std::ldexp(1 + uniform(random), static_cast<int>(random.between(-40, 40))), 0,
             std::ldexp(1 + uniform(random), static_cast<int>(random.between(-40, 40))), 0};
  if (function == Function::exp) x.a_high = -uniform(random) * 660;
  if (function == Function::expm1)
    x.a_high = sign * std::ldexp(0.34 * uniform(random), -static_cast<int>(random.between(0, 60)));
  if (function == Function::tanh)
    x.a_high = sign * std::ldexp(uniform(random), static_cast<int>(random.between(-60, 6)));
  if (function == Function::log) x.a_high = 1 + uniform(random) * 1000;
  x.a_low = x.a_high * (uniform(random) - 0.5) * 0x1p-53;
  x.b_low = x.b_high * (uniform(random) - 0.5) * 0x1p-53;
  return x;
}

TEST(DoubleDouble, KeepsWhatItPromisesOnEveryTarget) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    testing_support::Random random(1);
    for (const Function function : kFunctions)
      for (int trial = 0; trial < 2000; ++trial) {
        const Operands x = operands(function, random);
        const Outcome y = HWY_DYNAMIC_DISPATCH(Evaluate)(function, x);
        const Exact want = exact(function, x);
        const Exact error = abs(Exact(y.high) + Exact(y.low) - want);
        // ln(x) near 0 is known to 2^-104 of 1, the size of what cancels there.
        const Exact size = function == Function::log && abs(want) < 1 ? Exact(1) : abs(want);
        ASSERT_LE(error.convert_to<double>(),
                  promised(function, x.a_high) * size.convert_to<double>())
            << hwy::TargetName(target) << " function " << static_cast<int>(function) << " of "
            << x.a_high << ", " << x.b_high;
      }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(DoubleDouble, ExpUnderflowsGradually) {
  for (const double x : {-700.0, -720.0, -740.0, -744.4}) {
    const Outcome y = HWY_DYNAMIC_DISPATCH(Evaluate)(Function::exp, {x, 0, 1, 0});
    EXPECT_NEAR(y.high + y.low, std::exp(x), 0x1p-1072 + 1e-15 * std::exp(x)) << x;
  }
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Evaluate)(Function::exp, {-800, 0, 1, 0}).high, 0);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Evaluate)(Function::exp, {-1e300, 0, 1, 0}).high, 0);
}

}  // namespace
}  // namespace attest
#endif
