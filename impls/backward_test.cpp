// SPDX-License-Identifier: Apache-2.0
// The gradients of the implementations that offer them, as impls/implementations_test.cpp tests
// forward: against a plain writing of the formulas, which central differences check in turn. Single
// rules, by hand: impls/backward_rows_test.cpp.
#include <cmath>

#include "impls/random_gradients.hpp"

namespace attest::testing {
namespace {

class Backward : public ::testing::TestWithParam<const char*> {
 protected:
  Loaded kernel = open_differentiating(GetParam());

  /// Call number `seed` with what forward and backward wrote.
  std::unique_ptr<RandomCall> gradients(std::uint64_t seed, DType dtype, int num_threads = 1) {
    auto call = random_call(seed, dtype);
    add_gradients(*call, seed);
    EXPECT_EQ(kernel.forward(call->p), ATTEST_OK) << "seed " << seed << kernel.message();
    spoil_empty_rows(*call);
    EXPECT_EQ(kernel.backward(call->p, num_threads), ATTEST_OK)
        << "seed " << seed << kernel.message();
    return call;
  }
};

/// Errors of each term relative to its size. Weights err by e = 1e-4 in f32 (1e-12 in f64) on
/// either side of exp, as forward does; so do delta and, twice as much, 1 - tanh^2 with a softcap
/// of 0.5 and more: 8 e. Each rounding to 16 bits adds u: of P in o and in f P, of o in delta, of
/// dS, and of the gradient itself: 5 u.
double relative_error(DType dtype) {
  const double e = dtype == DType::f64 ? 1e-12 : 1e-4;
  return 8 * e + (limits(dtype).unit_roundoff > 0x1p-24 ? 5 * limits(dtype).unit_roundoff : 0);
}

void expect_gradients(RandomCall& call, std::uint64_t seed) {
  GradientAnswer expected(call);
  const double underflow = 2 * limits(call.dtype).half_min_subnormal;
  for (const char* input : kDifferentiable) {
    if (!call.has(input)) continue;
    Tensor& gradient = call[std::string("d_") + input];
    gradient.fill([&](const Shape& index) {
      const ExpectedGradient& want = expected.at(input, index);
      const double got = gradient.get(index);
      const double room =
          relative_error(call.dtype) * want.magnitude + underflow * (want.floor + 1);
      EXPECT_LE(std::fabs(got - want.value), room)
          << "seed " << seed << ' ' << name(call.dtype) << " d_" << input << ' '
          << ::testing::PrintToString(index) << ": " << got << ", not " << want.value;
      return got;
    });
  }
}

TEST_P(Backward, GivesTheAnswerOfTheFormulas) {
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    for (const DType dtype : kAllDTypes) {
      const auto call = gradients(seed, dtype);
      expect_gradients(*call, seed);
      if (HasFailure()) return;
    }
}

/// dO.o + dLSE.lse after a forward call, over the rows that count.
double loss(Loaded& kernel, RandomCall& call) {
  EXPECT_EQ(kernel.forward(call.p), ATTEST_OK) << kernel.message();
  double sum = 0;
  Tensor &o = call["o"], &d_o = call["d_o"];
  for (const Shape& row : rows_with_keys(call, true))
    for (std::int64_t c = 0; c < o.extent(3); ++c) {
      const Shape at{row[0], row[1], row[2], c};
      sum += d_o.get(at) * o.get(at);
    }
  if (!call.p.d_lse) return sum;
  call["lse"].fill([&](const Shape& row) {
    const double lse = call["lse"].get(row), d_lse = call["d_lse"].get(row);
    if (std::isfinite(lse) && std::isfinite(d_lse)) sum += d_lse * lse;
    return lse;
  });
  return sum;
}

/// The slope of the loss in one element, from four points: errs by h^4 and by rounding / h.
double difference(Loaded& kernel, RandomCall& call, Tensor& input, const Shape& at) {
  constexpr double kStep = 1e-3;
  const double x = input.get(at);
  const auto loss_at = [&](double steps) {
    input.set(at, x + steps * kStep);
    return loss(kernel, call);
  };
  const double slope = (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * kStep);
  input.set(at, x);
  return slope;
}

TEST_P(Backward, FollowsCentralDifferencesOfItsForward) {
  Numbers numbers(1);
  std::map<std::string, int> compared;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const auto made = random_call(seed, DType::f64);
    RandomCall& call = *made;
    if (!call.p.lse)
      call.p.lse = call.add("lse", dl_dtype(DType::f64),
                            {call.p.q->shape[0], call.p.q->shape[1], call.p.q->shape[2]})
                       .dl();
    add_gradients(call, seed);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    ASSERT_EQ(kernel.backward(call.p), ATTEST_OK);
    for (const char* input : kDifferentiable) {
      if (!call.has(input)) continue;
      Tensor& tensor = call[input];
      std::vector<Shape> elements;
      tensor.fill([&](const Shape& at) {
        if (std::isfinite(tensor.get(at))) elements.push_back(at);
        return tensor.get(at);
      });
      for (int n = 0; n < 4 && !elements.empty(); ++n, ++compared[input]) {
        const auto last = static_cast<std::int64_t>(elements.size()) - 1;
        const Shape at = elements[static_cast<std::size_t>(numbers.between(0, last))];
        const double got = call[std::string("d_") + input].get(at);
        const double slope = difference(kernel, call, tensor, at);
        ASSERT_NEAR(got, slope, 1e-7 * (1 + std::fabs(slope)))
            << "seed " << seed << " d_" << input << ' ' << ::testing::PrintToString(at);
      }
    }
  }
  for (const char* input : kDifferentiable) EXPECT_GE(compared[input], 50) << input;
}

TEST_P(Backward, WritesGradientsAloneAndAllOfThem) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto call = random_call(seed, DType::bf16);
    add_gradients(*call, seed);
    ASSERT_EQ(kernel.forward(call->p), ATTEST_OK);
    std::map<std::string, std::vector<unsigned char>> before;
    for (const auto& entry : call->tensors) before[entry.first] = entry.second->bytes();
    ASSERT_EQ(kernel.backward(call->p), ATTEST_OK);
    const std::set<std::string> inputs(std::begin(kDifferentiable), std::end(kDifferentiable));
    for (const auto& entry : call->tensors) {
      const std::string what = entry.first + ", seed " + std::to_string(seed);
      if (entry.first.rfind("d_", 0) == 0 && inputs.count(entry.first.substr(2)))
        expect_written_exactly(*entry.second, what);
      else
        EXPECT_EQ(entry.second->bytes(), before[entry.first]) << what;
    }
  }
}

TEST_P(Backward, GivesEachGradientAlikeWithoutTheOthers) {
  Numbers numbers(2);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto all = gradients(seed, DType::f32);
    const auto some = random_call(seed, DType::f32);
    add_gradients(*some, seed);
    std::set<std::string> wanted;
    for (const char* input : kDifferentiable) {
      if (!some->has(input)) continue;
      if (numbers.one_in(2))
        wanted.insert(input);
      else
        gradient_field(some->p, input) = nullptr;
    }
    ASSERT_EQ(kernel.forward(some->p), ATTEST_OK);
    ASSERT_EQ(kernel.backward(some->p), ATTEST_OK);
    for (const std::string& input : wanted)
      ASSERT_EQ((*some)["d_" + input].bytes(), (*all)["d_" + input].bytes())
          << "seed " << seed << " d_" << input;
  }
}

TEST_P(Backward, DoesNotDependOnThreads) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const auto one = gradients(seed, dtype, 1), four = gradients(seed, dtype, 4);
      for (const char* input : kDifferentiable) {
        const std::string gradient = std::string("d_") + input;
        if (one->has(gradient)) {
          ASSERT_EQ((*one)[gradient].bytes(), (*four)[gradient].bytes()) << seed << gradient;
        }
      }
    }
}

/// The gradients of a call large enough that its threads overlap: some 10 ms.
std::map<std::string, std::vector<unsigned char>> large_gradients(Loaded& kernel, int num_threads) {
  RandomCall call;
  const DLDataType type = dl_dtype(DType::f32);
  Numbers numbers(4);
  const auto add = [&](const std::string& name, const Shape& shape) {
    call.add("d_" + name, type, shape);
    Tensor& tensor = call.add(name, type, shape);
    for (Tensor* t : {&tensor, &call["d_" + name]})
      t->fill([&](const Shape&) { return numbers.real(-1, 1); });
    return tensor.dl();
  };
  call.p.q = add("q", {2, 4, 192, 32}), call.p.k = add("k", {2, 2, 192, 32});
  call.p.v = add("v", {2, 2, 192, 32}), call.p.o = add("o", {2, 4, 192, 32});
  call.p.bias = add("bias", {1, 1, 192, 192}), call.p.sink = add("sink", {4});
  call.p.alibi_slopes = add("alibi_slopes", {4}), call.p.alibi = ATTEST_ALIBI_SIGNED;
  call.p.d_o = call["d_o"].dl();
  EXPECT_EQ(kernel.forward(call.p), ATTEST_OK);
  std::map<std::string, std::vector<unsigned char>> bytes;
  for (const char* input : kDifferentiable)
    gradient_field(call.p, input) = call[std::string("d_") + input].dl();
  EXPECT_EQ(kernel.backward(call.p, num_threads), ATTEST_OK);
  for (const char* input : kDifferentiable) bytes[input] = call[std::string("d_") + input].bytes();
  return bytes;
}

TEST_P(Backward, DoesNotDependOnThreadsThatOverlap) {
  const auto one = large_gradients(kernel, 1);
  for (int run = 0; run < 3; ++run)
    for (const auto& [input, bytes] : large_gradients(kernel, 4))
      EXPECT_EQ(bytes, one.at(input)) << input;
}

TEST_P(Backward, ZeroGradientsOfOutputsGiveExactlyZero) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto call = random_call(seed, DType::f16);
    add_gradients(*call, seed);
    (*call)["d_o"].fill([](const Shape&) { return 0; });
    if (call->p.d_lse) (*call)["d_lse"].fill([](const Shape&) { return 0; });
    ASSERT_EQ(kernel.forward(call->p), ATTEST_OK);
    ASSERT_EQ(kernel.backward(call->p), ATTEST_OK);
    for (const char* input : kDifferentiable) {
      if (!call->has(input)) continue;
      Tensor& gradient = (*call)[std::string("d_") + input];
      gradient.fill([&](const Shape& at) {
        EXPECT_EQ(gradient.get(at), 0) << "seed " << seed << " d_" << input;
        return 0;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Backward, ::testing::ValuesIn(kDifferentiating),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace attest::testing
