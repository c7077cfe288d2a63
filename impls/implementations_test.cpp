// SPDX-License-Identifier: Apache-2.0
// Every implementation of this folder, loaded from its module as the command does it. The suite
// itself checks them far more closely; this finds gross mistakes without any of its machinery.
#include <cmath>

#include "impls/plain_answer.hpp"
#include "impls/random_call.hpp"

namespace attest::testing {
namespace {

std::string module_path(const std::string& name) {
  return std::string(ATTEST_BINARY_DIR) + "/lib/attest/" + name + ".so";
}

class Implementation : public ::testing::TestWithParam<const char*> {
 protected:
  Loaded kernel{module_path(GetParam())};
};

TEST_P(Implementation, GivesTheAnswerOfTheFormulas) {
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    for (const DType dtype : kAllDTypes) {
      const auto call = random_call(seed, dtype);
      ASSERT_EQ(kernel.forward(call->p), ATTEST_OK) << "seed " << seed << kernel.message();
      expect_answer(*call, seed);
      if (HasFatalFailure()) return;
    }
}

TEST_P(Implementation, WritesOutputsAloneAndAllOfThem) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto call = random_call(seed, DType::bf16);
    std::map<std::string, std::vector<unsigned char>> before;
    for (const auto& entry : call->tensors) before[entry.first] = entry.second->bytes();
    ASSERT_EQ(kernel.forward(call->p), ATTEST_OK);
    for (const auto& entry : call->tensors) {
      const std::string what = entry.first + ", seed " + std::to_string(seed);
      if (entry.first == "o" || entry.first == "lse")
        expect_written_exactly(*entry.second, what);
      else
        EXPECT_EQ(entry.second->bytes(), before[entry.first]) << what;
    }
  }
}

TEST_P(Implementation, DoesNotDependOnThreads) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto one = random_call(seed, DType::f32), four = random_call(seed, DType::f32);
    ASSERT_EQ(kernel.forward(one->p, 1), ATTEST_OK);
    ASSERT_EQ(kernel.forward(four->p, 4), ATTEST_OK);
    ASSERT_EQ((*one)["o"].bytes(), (*four)["o"].bytes()) << seed;
    if (one->p.lse) {
      ASSERT_EQ((*one)["lse"].bytes(), (*four)["lse"].bytes()) << seed;
    }
  }
}

/// Two queries, three keys, one channel, f32; v = 1, 2, 4 and all scores 0.
struct SmallCall {
  Tensor q{dl_dtype(DType::f32), {1, 1, 2, 1}}, k{dl_dtype(DType::f32), {1, 1, 3, 1}};
  Tensor v{dl_dtype(DType::f32), {1, 1, 3, 1}}, o{dl_dtype(DType::f32), {1, 1, 2, 1}};
  Tensor lse{dl_dtype(DType::f32), {1, 1, 2}};
  Tensor extra{dl_dtype(DType::f32), {1, 1, 2, 3}}, mask{kDlUint8, {1, 1, 2, 3}};
  attest_attention p = plain_call();

  SmallCall() {
    for (Tensor* t : {&q, &k, &extra}) t->fill([](const Shape&) { return 0; });
    mask.fill([](const Shape&) { return 1; });
    for (std::int64_t j = 0; j < 3; ++j) v.set({0, 0, j, 0}, static_cast<double>(1 << j));
    p.q = q.dl(), p.k = k.dl(), p.v = v.dl(), p.o = o.dl(), p.lse = lse.dl();
  }
  double out(std::int64_t i) { return o.get({0, 0, i, 0}); }
  double log_sum(std::int64_t i) { return lse.get({0, 0, i}); }
};

TEST_P(Implementation, AlignsCausalAtBothEnds) {
  SmallCall call;
  call.p.base = ATTEST_BASE_CAUSAL;
  call.p.align = ATTEST_ALIGN_BOTTOM_RIGHT;
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FLOAT_EQ(1.5f, static_cast<float>(call.out(0)));
  EXPECT_FLOAT_EQ(7.0f / 3, static_cast<float>(call.out(1)));
  EXPECT_FLOAT_EQ(std::log(2.0f), static_cast<float>(call.log_sum(0)));
  call.p.align = ATTEST_ALIGN_TOP_LEFT;
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_EQ(1, call.out(0));
  EXPECT_FLOAT_EQ(1.5f, static_cast<float>(call.out(1)));
}

TEST_P(Implementation, LetsNoMaskedNanThrough) {
  SmallCall call;
  call.p.mask = call.mask.dl();
  call.mask.set({0, 0, 0, 1}, 0);
  call.k.set({0, 0, 1, 0}, NAN);
  call.v.set({0, 0, 1, 0}, NAN);
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FLOAT_EQ(2.5f, static_cast<float>(call.out(0)));
  EXPECT_FLOAT_EQ(std::log(2.0f), static_cast<float>(call.log_sum(0)));
  EXPECT_FALSE(std::isfinite(call.out(1)));
  EXPECT_FALSE(std::isfinite(call.log_sum(1)));
}

TEST_P(Implementation, LetsVisibleNanOut) {
  {
    SmallCall call;
    call.v.set({0, 0, 2, 0}, NAN);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_TRUE(std::isnan(call.out(0)));
    EXPECT_FLOAT_EQ(std::log(3.0f), static_cast<float>(call.log_sum(0)));
  }
  for (const char* where : {"q", "k", "bias", "sink"}) {
    SmallCall call;
    Tensor sink(dl_dtype(DType::f32), {1});
    sink.set({0}, where == std::string("sink") ? NAN : 0);
    call.p.sink = sink.dl();
    call.p.bias = call.extra.dl();
    if (where == std::string("q")) call.q.set({0, 0, 0, 0}, NAN);
    if (where == std::string("k")) call.k.set({0, 0, 0, 0}, NAN);
    if (where == std::string("bias")) call.extra.set({0, 0, 0, 2}, NAN);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_FALSE(std::isfinite(call.out(0))) << where;
    EXPECT_FALSE(std::isfinite(call.log_sum(0))) << where;
    const bool other_row_too = where == std::string("k") || where == std::string("sink");
    EXPECT_EQ(other_row_too, !std::isfinite(call.out(1))) << where;
  }
}

TEST_P(Implementation, AllKeysNanIsNoEmptyRow) {
  SmallCall call;
  call.k.fill([](const Shape&) { return NAN; });
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FALSE(std::isfinite(call.out(0)));
  EXPECT_FALSE(std::isfinite(call.log_sum(0)));
}

TEST_P(Implementation, EmptyRowIsZeroAndMinusInfinityOrTheSink) {
  SmallCall call;
  call.p.mask = call.mask.dl();
  for (std::int64_t j = 0; j < 3; ++j) call.mask.set({0, 0, 0, j}, 0);
  call.q.set({0, 0, 0, 0}, NAN);  // an empty row depends on nothing
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_EQ(0, call.out(0));
  EXPECT_EQ(-HUGE_VAL, call.log_sum(0));
  EXPECT_FLOAT_EQ(7.0f / 3, static_cast<float>(call.out(1)));
  Tensor sink(dl_dtype(DType::f32), {1});
  sink.set({0}, 0.75);
  call.p.sink = sink.dl();
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_EQ(0, call.out(0));
  EXPECT_EQ(0.75, call.log_sum(0));
}

TEST_P(Implementation, RowOfLowestBiasStaysFinite) {
  SmallCall call;
  call.k.fill([](const Shape& at) { return static_cast<double>(at[2]); });
  call.q.fill([](const Shape&) { return -3; });
  call.extra.fill([](const Shape&) { return -limits(DType::f32).max_finite; });
  call.p.bias = call.extra.dl();
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_GE(call.out(0), 0);
  EXPECT_LE(call.out(0), 4);
}

TEST_P(Implementation, DroppedKeyCountsInTheSumAlone) {
  SmallCall call;
  Tensor keep(kDlUint8, {1, 1, 2, 3});
  keep.fill([](const Shape& at) { return at[3] != 2; });
  call.p.keep = keep.dl();
  call.p.dropout_p = 0.5;
  call.v.set({0, 0, 2, 0}, NAN);
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FLOAT_EQ(2.0f, static_cast<float>(call.out(0)));  // (1 + 2) / 3 * 2
  EXPECT_FLOAT_EQ(std::log(3.0f), static_cast<float>(call.log_sum(0)));
}

TEST_P(Implementation, VisibleNanComesOutThoughEveryKeyIsDropped) {
  SmallCall call;
  Tensor keep(kDlUint8, {1, 1, 2, 3});
  keep.fill([](const Shape&) { return 0; });
  call.p.keep = keep.dl();
  call.p.dropout_p = 0.5;
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_EQ(0, call.out(0));
  call.q.set({0, 0, 0, 0}, NAN);
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FALSE(std::isfinite(call.out(0)));
  EXPECT_EQ(0, call.out(1));
}

TEST_P(Implementation, NoSequenceNeedsNoList) {
  SmallCall call;
  Tensor q(dl_dtype(DType::f32), {0, 1, 2, 1}), k(dl_dtype(DType::f32), {0, 1, 3, 1});
  Tensor o(dl_dtype(DType::f32), {0, 1, 2, 1}), lse(dl_dtype(DType::f32), {0, 1, 2});
  call.p.q = q.dl(), call.p.k = k.dl(), call.p.v = k.dl(), call.p.o = o.dl();
  call.p.lse = lse.dl();
  call.p.base = ATTEST_BASE_PREFIX;
  call.p.align = ATTEST_ALIGN_Q_OFFSET;
  EXPECT_EQ(kernel.forward(call.p), ATTEST_OK) << kernel.message();
}

TEST_P(Implementation, TakesStrideZero) {
  SmallCall call;
  call.v.broadcast_axis(2);
  ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
  EXPECT_FLOAT_EQ(1.0f, static_cast<float>(call.out(1)));
}

TEST_P(Implementation, RefusesWhatItDoesNotKnow) {
  const auto expect_refused = [&](auto&& change, attest_status status, const char* word) {
    SmallCall call;
    change(call);
    EXPECT_EQ(kernel.forward(call.p), status) << word;
    EXPECT_NE(kernel.message().find(word), std::string::npos) << kernel.message();
  };
  expect_refused([](auto& c) { c.p.base = 3; }, ATTEST_UNSUPPORTED, "base=3");
  expect_refused([](auto& c) { c.p.align = 7; }, ATTEST_UNSUPPORTED, "align=7");
  expect_refused([](auto& c) { c.p.alibi = -1; }, ATTEST_UNSUPPORTED, "alibi=-1");
  expect_refused([](auto& c) { c.p.rope = 3; }, ATTEST_UNSUPPORTED, "rope=3");
  expect_refused([](auto& c) { c.p.reserved = 1; }, ATTEST_UNSUPPORTED, "reserved");
  expect_refused([](auto& c) { c.p.reserved_end = 1; }, ATTEST_UNSUPPORTED, "reserved");
  expect_refused([](auto& c) { c.q.dl()->dtype = {kDLInt, 32, 1}; }, ATTEST_UNSUPPORTED, "q");
  expect_refused([](auto& c) { c.v.dl()->dtype = {kDLFloat, 64, 1}; }, ATTEST_INVALID, "v");
  expect_refused([](auto& c) { c.p.mask = c.q.dl(); }, ATTEST_INVALID, "mask");
  expect_refused([](auto& c) { c.p.align = ATTEST_ALIGN_Q_OFFSET; }, ATTEST_INVALID, "q_offset");
  expect_refused([](auto& c) { c.p.o = nullptr; }, ATTEST_INVALID, "o must");
}

INSTANTIATE_TEST_SUITE_P(, Implementation, ::testing::Values("naive", "chunked", "einsum"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace attest::testing
