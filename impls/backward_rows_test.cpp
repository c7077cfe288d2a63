// SPDX-License-Identifier: Apache-2.0
// What single rows and keys give to gradients, by hand: masked, empty, silent, NaN; sizes of 0.
#include <cmath>

#include "impls/random_gradients.hpp"

namespace attest::testing {
namespace {

class BackwardRows : public ::testing::TestWithParam<const char*> {
 protected:
  Loaded kernel = open_differentiating(GetParam());
};

/// Two queries, three keys, one channel, f32, all scores 0, with every gradient wanted; v = 1, 2, 4
/// and dO = 1, 1.
struct SmallCall {
  RandomCall call;

  SmallCall() {
    const DLDataType type = dl_dtype(DType::f32);
    for (const char* name : {"q", "o", "d_o", "d_q"}) call.add(name, type, {1, 1, 2, 1});
    for (const char* name : {"k", "v", "d_k", "d_v"}) call.add(name, type, {1, 1, 3, 1});
    for (const char* name : {"lse", "d_lse"}) call.add(name, type, {1, 1, 2});
    for (const char* name : {"bias", "d_bias"}) call.add(name, type, {1, 1, 2, 3});
    for (const char* name : {"sink", "d_sink"}) call.add(name, type, {1});
    for (const char* name : {"mask", "keep"}) call.add(name, kDlUint8, {1, 1, 2, 3});
    for (const char* name : {"q", "k", "d_lse", "bias", "sink"}) fill(name, 0);
    for (const char* name : {"d_o", "mask", "keep"}) fill(name, 1);
    for (std::int64_t j = 0; j < 3; ++j) call["v"].set({0, 0, j, 0}, static_cast<double>(1 << j));
    call.p.q = dl("q"), call.p.k = dl("k"), call.p.v = dl("v"), call.p.o = dl("o");
    call.p.lse = dl("lse"), call.p.d_o = dl("d_o"), call.p.d_lse = dl("d_lse");
    call.p.bias = dl("bias"), call.p.mask = dl("mask");
    call.p.d_q = dl("d_q"), call.p.d_k = dl("d_k"), call.p.d_v = dl("d_v");
    call.p.d_bias = dl("d_bias");
  }
  DLTensor* dl(const char* name) { return call[name].dl(); }
  void fill(const char* name, double value) {
    call[name].fill([&](const Shape&) { return value; });
  }
  void want_sink() { call.p.sink = dl("sink"), call.p.d_sink = dl("d_sink"); }
  /// Row or pair of a tensor of four axes.
  double get(const char* name, std::int64_t i, std::int64_t j = 0) {
    return call[name].get({0, 0, i, j});
  }
};

// With P = 1/3 each, o = 7/3: dZ_j = (v_j - 7/3) / 3 = -4/9, -1/9, 5/9 in both rows.
TEST_P(BackwardRows, GivesWhatOneCalculatesByHand) {
  SmallCall c;
  c.fill("k", 3);
  c.call["k"].set({0, 0, 2, 0}, 3 + 0x1p-12);  // dQ alone sees it, to 2^-12
  c.fill("d_lse", 0.25);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(c.get("d_bias", i, 0), -4.0 / 9 + 0.25 / 3, 1e-6);
    EXPECT_NEAR(c.get("d_bias", i, 2), 5.0 / 9 + 0.25 / 3, 1e-6);
    EXPECT_NEAR(c.get("d_q", i), 3 * 0.25 + 0x1p-12 * (5.0 / 9 + 0.25 / 3), 2e-6);
  }
  for (std::int64_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(c.get("d_v", j), 2.0 / 3, 1e-6);
    EXPECT_EQ(c.get("d_k", j), 0);
  }
}

TEST_P(BackwardRows, LetsNoMaskedNanThrough) {
  SmallCall c;
  for (const std::int64_t i : {0, 1}) c.call["mask"].set({0, 0, i, 1}, 0);
  c.call["k"].set({0, 0, 1, 0}, NAN);
  c.call["v"].set({0, 0, 1, 0}, NAN);
  for (const std::int64_t i : {0, 1}) c.call["bias"].set({0, 0, i, 1}, NAN);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  for (const char* gradient : {"d_k", "d_v"}) EXPECT_EQ(c.get(gradient, 1), 0) << gradient;
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(c.get("d_q", i), 0);
    EXPECT_EQ(c.get("d_bias", i, 1), 0);
    EXPECT_FLOAT_EQ(static_cast<float>(c.get("d_bias", i, 2)), 0.75f);  // (4 - 5/2) / 2
    EXPECT_FLOAT_EQ(static_cast<float>(c.get("d_v", 2 * i)), 1.0f);
  }
}

TEST_P(BackwardRows, LetsVisibleNanOut) {
  for (const char* where : {"d_o", "d_lse"}) {
    SmallCall c;
    c.call["mask"].set({0, 0, 0, 1}, 0);
    if (where == std::string("d_o"))
      c.call["d_o"].set({0, 0, 0, 0}, NAN);
    else
      c.call["d_lse"].set({0, 0, 0}, NAN);
    ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
    ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
    EXPECT_TRUE(std::isnan(c.get("d_q", 0))) << where;
    EXPECT_TRUE(std::isfinite(c.get("d_q", 1))) << where;
    for (std::int64_t j = 0; j < 3; ++j) {
      EXPECT_EQ(std::isnan(c.get("d_k", j)), j != 1) << where;
      EXPECT_EQ(std::isnan(c.get("d_v", j)), j != 1 && where == std::string("d_o"));
      EXPECT_EQ(std::isnan(c.get("d_bias", 0, j)), j != 1) << where;
      EXPECT_TRUE(std::isfinite(c.get("d_bias", 1, j))) << where;
    }
  }
}

TEST_P(BackwardRows, VisibleNanComesOutThoughEveryKeyIsDropped) {
  SmallCall c;
  for (std::int64_t j = 0; j < 3; ++j) c.call["keep"].set({0, 0, 0, j}, 0);
  c.call.p.keep = c.dl("keep"), c.call.p.dropout_p = 0.5;
  c.call["d_o"].set({0, 0, 0, 0}, NAN);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  EXPECT_TRUE(std::isnan(c.get("d_q", 0)));
  EXPECT_TRUE(std::isfinite(c.get("d_q", 1)));
  for (const char* gradient : {"d_k", "d_v"})
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(c.get(gradient, j))) << gradient;
}

TEST_P(BackwardRows, RowsWithoutGradientAddExactlyNothing) {
  const auto run = [&](SmallCall& c) {
    c.want_sink();
    c.fill("q", 2), c.fill("k", 1);
    ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  };
  // Row 0 has dO = dLSE = 0, and the other row alone counts, whatever row 0's o is and it sees.
  SmallCall silent, masked;
  for (SmallCall* c : {&silent, &masked}) {
    c->call["mask"].set({0, 0, 1, 2}, 0);
    c->call["v"].set({0, 0, 2, 0}, HUGE_VAL);
  }
  for (std::int64_t j = 0; j < 3; ++j) masked.call["mask"].set({0, 0, 0, j}, 0);
  silent.call["d_o"].set({0, 0, 0, 0}, 0);
  run(silent), run(masked);
  silent.call["o"].set({0, 0, 0, 0}, HUGE_VAL);
  for (SmallCall* c : {&silent, &masked}) ASSERT_EQ(kernel.backward(c->call.p), ATTEST_OK);
  for (const char* gradient : {"d_q", "d_k", "d_v", "d_bias", "d_sink"})
    EXPECT_EQ(silent.call[gradient].bytes(), masked.call[gradient].bytes()) << gradient;
  EXPECT_LT(silent.call["d_sink"].get({0}), 0);
}

TEST_P(BackwardRows, ZeroOfDoMeetsNoInfiniteOutput) {
  SmallCall c;
  c.fill("d_o", 0), c.fill("d_lse", 0.75);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  c.fill("o", HUGE_VAL);  // as in f16 beyond 65504
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  for (std::int64_t j = 0; j < 3; ++j) {
    EXPECT_FLOAT_EQ(static_cast<float>(c.get("d_bias", 1, j)), 0.25f);
    EXPECT_EQ(c.get("d_v", j), 0);
  }
}

TEST_P(BackwardRows, DroppedValueGivesNothing) {
  SmallCall c;
  for (std::int64_t i = 0; i < 2; ++i) c.call["keep"].set({0, 0, i, 2}, 0);
  c.call.p.keep = c.dl("keep"), c.call.p.dropout_p = 0.5;
  c.call["v"].set({0, 0, 2, 0}, NAN);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  // o = 2 (1 + 2) / 3, dP = 2, 4, 0.
  EXPECT_NEAR(c.get("d_bias", 0, 0), 0, 1e-6);
  EXPECT_NEAR(c.get("d_bias", 0, 1), 2.0 / 3, 1e-6);
  EXPECT_NEAR(c.get("d_bias", 0, 2), -2.0 / 3, 1e-6);
  EXPECT_NEAR(c.get("d_v", 0), 4.0 / 3, 1e-6);
  EXPECT_EQ(c.get("d_v", 2), 0);
}

TEST_P(BackwardRows, EmptyRowGivesItsLseToTheSinkAlone) {
  SmallCall c;
  c.want_sink();
  for (std::int64_t j = 0; j < 3; ++j) c.call["mask"].set({0, 0, 0, j}, 0);
  c.call["d_lse"].set({0, 0, 0}, 0.375);
  c.call["d_o"].set({0, 0, 1, 0}, 0);
  c.call["d_o"].set({0, 0, 0, 0}, NAN);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  c.call["o"].set({0, 0, 0, 0}, NAN);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  EXPECT_EQ(c.call["d_sink"].get({0}), 0.375);
  for (const char* gradient : {"d_q", "d_bias", "d_k", "d_v"}) EXPECT_EQ(c.get(gradient, 0), 0);
  c.call.p.sink = nullptr, c.call.p.d_sink = nullptr;
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  for (const char* gradient : {"d_q", "d_bias", "d_k", "d_v"}) EXPECT_EQ(c.get(gradient, 0), 0);
}

TEST_P(BackwardRows, SinkOfMinusInfinityGetsZero) {
  SmallCall c;
  c.want_sink();
  c.fill("sink", -HUGE_VAL);
  for (std::int64_t j = 0; j < 3; ++j) c.call["mask"].set({0, 0, 0, j}, 0);
  c.fill("d_lse", 1);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  EXPECT_EQ(c.call["d_sink"].get({0}), 0);
}

TEST_P(BackwardRows, TakesStrideZero) {
  SmallCall c;
  c.call["v"].broadcast_axis(2);
  c.call["d_o"].broadcast_axis(2);
  ASSERT_EQ(kernel.forward(c.call.p), ATTEST_OK);
  ASSERT_EQ(kernel.backward(c.call.p), ATTEST_OK);
  for (std::int64_t j = 0; j < 3; ++j)
    EXPECT_FLOAT_EQ(static_cast<float>(c.get("d_v", j)), 2.0f / 3);
}

TEST_P(BackwardRows, WritesZerosWhereASizeIsZero) {
  struct Case {
    std::int64_t batch, q_len, kv_len, v_dim;
  };
  for (const Case& size :
       {Case{0, 2, 3, 1}, Case{2, 0, 3, 1}, Case{2, 2, 0, 1}, Case{2, 0, 0, 1}, Case{2, 2, 3, 0}}) {
    RandomCall call;
    const DLDataType type = dl_dtype(DType::f32);
    const auto add = [&](const char* name, const Shape& shape, double value) {
      call.add(std::string("d_") + name, type, shape);
      Tensor& tensor = call.add(name, type, shape);
      tensor.fill([&](const Shape&) { return value; });
      return tensor.dl();
    };
    call.p.q = add("q", {size.batch, 2, size.q_len, 2}, 1);
    call.p.k = add("k", {size.batch, 1, size.kv_len, 2}, 1);
    call.p.v = add("v", {size.batch, 1, size.kv_len, size.v_dim}, 1);
    call.p.o = add("o", {size.batch, 2, size.q_len, size.v_dim}, 0);
    call.p.bias = add("bias", {1, 1, 1, 1}, 0);
    call.p.sink = add("sink", {2}, -HUGE_VAL);
    call.p.alibi_slopes = add("alibi_slopes", {2}, 0.5);
    call.p.alibi = ATTEST_ALIBI_SIGNED;
    call["d_o"].fill([](const Shape&) { return 1; });
    call.p.d_o = call["d_o"].dl();
    for (const char* input : kDifferentiable)
      gradient_field(call.p, input) = call[std::string("d_") + input].dl();
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK) << kernel.message();
    ASSERT_EQ(kernel.backward(call.p), ATTEST_OK) << kernel.message();
    for (const char* input : kDifferentiable) {
      Tensor& gradient = call[std::string("d_") + input];
      gradient.fill([&](const Shape& at) {
        EXPECT_EQ(gradient.get(at), 0) << input << " of batch " << size.batch << " q_len "
                                       << size.q_len << " kv_len " << size.kv_len;
        return 0;
      });
    }
  }
}

TEST_P(BackwardRows, RefusesWhatContradictsItself) {
  const auto expect_refused = [&](auto&& change, const char* word) {
    SmallCall c;
    change(c);
    EXPECT_EQ(kernel.backward(c.call.p), ATTEST_INVALID) << word;
    EXPECT_NE(kernel.message().find(word), std::string::npos) << kernel.message();
  };
  expect_refused([](auto& c) { c.call.p.d_o = nullptr; }, "d_o");
  expect_refused([](auto& c) { c.call.p.d_o = c.dl("k"); }, "d_o");
  expect_refused([](auto& c) { c.call.p.d_q = c.dl("d_k"); }, "d_q");
  expect_refused([](auto& c) { c.call.p.d_v = c.dl("d_q"); }, "d_v");
  expect_refused([](auto& c) { c.call.p.d_lse = c.dl("d_o"); }, "d_lse");
  expect_refused([](auto& c) { c.call.p.bias = nullptr; }, "d_bias");
  expect_refused([](auto& c) { c.call.p.d_sink = c.dl("d_sink"); }, "d_sink");
  expect_refused([](auto& c) { c.call.p.d_alibi_slopes = c.dl("d_sink"); }, "d_alibi_slopes");
}

INSTANTIATE_TEST_SUITE_P(, BackwardRows, ::testing::ValuesIn(kDifferentiating),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace attest::testing
