// SPDX-License-Identifier: Apache-2.0
// The rotary embeddings of this folder as kernels, called as a component: against the formula, on
// any strides, and what they and the C++ layer refuse.
#include <cmath>

#include "impls/testing.hpp"

namespace attest::testing {
namespace {

/// One call, [2, 3, 4, 9] in the memory order given, with its tables and a result to expect.
struct Call {
  Call(DType type, std::int32_t the_pairing, bool the_inverse, const std::vector<int>& order)
      : pairing(the_pairing),
        inverse(the_inverse),
        x(dl_dtype(type), {2, 3, 4, 9}, order),
        y(dl_dtype(type), {2, 3, 4, 9}, order, 3),
        positions(kDlInt32, {2, 4}),
        cosines(dl_dtype(wide(type)), {kRows, 3}),
        sines(dl_dtype(wide(type)), {kRows, 3}) {
    Numbers numbers(3);
    x.fill([&](const Shape&) { return numbers.real(-2, 2); });
    positions.fill([](const Shape& at) {
      return static_cast<double>(kFirst + (at[0] * 5 + at[1] * 3) % kRows);
    });
    cosines.fill([&](const Shape& at) { return std::cos(theta(kFirst + at[0], at[1])); });
    sines.fill([&](const Shape& at) { return std::sin(theta(kFirst + at[0], at[1])); });
    inputs = {
        {"x", x.dl()}, {"positions", positions.dl()}, {"cos", cosines.dl()}, {"sin", sines.dl()}};
    outputs = {{"y", y.dl()}};
    scalars = {{"pairing", 0, 0, pairing, 0},
               {"rope_dim", 0, 0, 6, 0},
               {"rope_position", 0, 0, kFirst, 0},
               {"inverse", 0, 0, inverse, 0},
               {"base", 1, 0, 0, 100},
               {"scale", 1, 0, 0, 2},
               {"ntk", 1, 0, 0, 3}};
  }

  attest_status make(Loaded& kernel) {
    attest_context context{};
    context.struct_size = sizeof context;
    context.num_threads = 2;
    context.message = message;
    context.message_capacity = sizeof message;
    return kernel.plugin().component(kernel.state(), operation, inputs.data(), inputs.size(),
                                     outputs.data(), outputs.size(), scalars.data(), scalars.size(),
                                     &context);
  }

  void expect_formula(double room) {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 3; ++h)
        for (std::int64_t i = 0; i < 4; ++i) {
          const auto in = [&](std::int64_t c) { return x.get({b, h, i, c}); };
          const auto out = [&](std::int64_t c) { return y.get({b, h, i, c}); };
          for (std::int64_t t = 0; t < 3; ++t) {
            const bool half = pairing == ATTEST_ROPE_HALF;
            const std::int64_t first = half ? t : 2 * t, second = half ? t + 3 : 2 * t + 1;
            const double angle =
                (inverse ? -1 : 1) * theta(static_cast<std::int64_t>(positions.get({b, i})), t);
            ASSERT_NEAR(out(first), in(first)*std::cos(angle) - in(second)*std::sin(angle), room);
            ASSERT_NEAR(out(second), in(first)*std::sin(angle) + in(second)*std::cos(angle), room);
          }
          for (std::int64_t c = 6; c < 9; ++c) ASSERT_EQ(out(c), in(c));
        }
  }

  static constexpr std::int64_t kRows = 12, kFirst = 40;
  static DType wide(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }
  static double theta(std::int64_t position, std::int64_t t) {
    const double base = 100 * std::pow(3.0, 6.0 / 4.0);
    return static_cast<double>(position) * std::pow(base, -2 * static_cast<double>(t) / 6) / 2;
  }

  std::int32_t pairing;
  bool inverse;
  const char* operation = "rope";
  Tensor x, y, positions, cosines, sines;
  std::vector<attest_named_tensor> inputs, outputs;
  std::vector<attest_named_scalar> scalars;
  char message[200] = "";
};

class RopeKernel : public ::testing::TestWithParam<const char*> {
 protected:
  Loaded kernel{std::string(ATTEST_BINARY_DIR) + "/lib/attest/" + GetParam() + ".so"};
};

TEST_P(RopeKernel, GivesTheAnswerOfTheFormulas) {
  for (const DType type : kAllDTypes)
    for (const std::int32_t pairing : {ATTEST_ROPE_INTERLEAVED, ATTEST_ROPE_HALF})
      for (const bool inverse : {false, true})
        for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 1, 3}, {3, 1, 2, 0}}) {
          Call call(type, pairing, inverse, order);
          ASSERT_EQ(call.make(kernel), ATTEST_OK) << call.message;
          call.expect_formula(8 * limits(type).unit_roundoff);
          expect_written_exactly(call.y, std::string(name(type)));
          if (HasFatalFailure()) return;
        }
}

TEST_P(RopeKernel, RefusesWhatItDoesNotKnow) {
  Call call(DType::f32, ATTEST_ROPE_HALF, false, {});
  call.operation = "norm";
  EXPECT_EQ(call.make(kernel), ATTEST_UNSUPPORTED);
  call.operation = "rope";
  call.scalars.push_back({"sections", 0, 0, 3, 0});
  EXPECT_EQ(call.make(kernel), ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "sections is given, which this plug-in does not know");
  call.scalars.pop_back();
  call.inputs.push_back({"bias", call.x.dl()});
  EXPECT_EQ(call.make(kernel), ATTEST_UNSUPPORTED);
  call.inputs.pop_back();
  call.scalars[0].i = 3;
  EXPECT_EQ(call.make(kernel), ATTEST_UNSUPPORTED);
  call.scalars[0].i = ATTEST_ROPE_HALF;
  EXPECT_EQ(call.make(kernel), ATTEST_OK);
}

TEST_P(RopeKernel, CallsContradictionsInvalid) {
  Call call(DType::f32, ATTEST_ROPE_HALF, false, {});
  const auto sin = call.inputs.back();
  call.inputs.pop_back();
  EXPECT_EQ(call.make(kernel), ATTEST_INVALID);
  EXPECT_STREQ(call.message, "sin is not given");
  call.inputs.push_back(sin);
  for (const std::int64_t dim : {-2, 5, 10, 4}) {
    call.scalars[1].i = dim;
    EXPECT_EQ(call.make(kernel), ATTEST_INVALID) << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(, RopeKernel, ::testing::Values("rope_complex", "rope_table"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Kernel, ThatIsNoRotaryEmbeddingRefusesToBeOne) {
  Loaded kernel(std::string(ATTEST_BINARY_DIR) + "/lib/attest/naive.so");
  Call call(DType::f32, ATTEST_ROPE_HALF, false, {});
  EXPECT_EQ(call.make(kernel), ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "rope is not served");
}

}  // namespace
}  // namespace attest::testing
