// SPDX-License-Identifier: Apache-2.0
// The plug-ins that misbehave, as far as a process can survive them: each is there, does its one
// thing, and is right otherwise.
#include <cmath>
#include <set>

#include "impls/testing.hpp"

namespace attest::testing {
namespace {

std::string broken_path(const std::string& module) {
  return std::string(ATTEST_BINARY_DIR) + "/lib/attest-broken/" + module + ".so";
}

/// Two heads, 2 queries and 4 keys (3 keys make accidents happen), one of them padding.
struct Call {
  Tensor q{dl_dtype(DType::f32), {1, 2, 2, 3}}, k{dl_dtype(DType::f32), {1, 1, 4, 3}};
  Tensor v{dl_dtype(DType::f32), {1, 1, 4, 2}}, o{dl_dtype(DType::f32), {1, 2, 2, 2}};
  Tensor lse{dl_dtype(DType::f32), {1, 2, 2}}, lengths{kDlInt32, {1}};
  attest_attention p = plain_call();

  Call() {
    Numbers numbers(11);
    for (Tensor* t : {&q, &k, &v}) t->fill([&](const Shape&) { return numbers.real(-1, 1); });
    for (std::int64_t c = 0; c < 2; ++c) v.set({0, 0, 3, c}, NAN);
    lengths.set({0}, 3);
    p.q = q.dl(), p.k = k.dl(), p.v = v.dl(), p.o = o.dl(), p.lse = lse.dl();
    p.seqlens_k = lengths.dl();
    p.base = ATTEST_BASE_CAUSAL;
  }

  /// o[0, h, i, c] by the formula: row i sees keys 0 .. i+1.
  double expected(std::int64_t h, std::int64_t i, std::int64_t c) {
    double sum = 0, out = 0;
    for (std::int64_t j = 0; j <= i + 1; ++j) {
      double z = 0;
      for (std::int64_t d = 0; d < 3; ++d) z += q.get({0, h, i, d}) * k.get({0, 0, j, d});
      sum += std::exp(z);
      out += std::exp(z) * v.get({0, 0, j, c});
    }
    return out / sum;
  }
  bool right() {
    bool all = true;
    o.fill([&](const Shape& at) {
      const double value = o.get(at);
      all = all && std::fabs(value - expected(at[1], at[2], at[3])) < 1e-6;
      return value;
    });
    return all;
  }
};

TEST(Broken, EveryKernelIsThere) {
  const std::set<std::string> expected = {
      "segfault",    "abort",       "exit",         "hang",           "allocate",
      "modify_q",    "read_past_k", "skip_element", "write_before_o", "null_deref_after_malloc",
      "leak_nan",    "swallow_nan", "junk_status",  "ignore_feature", "refuse_all",
      "top_left",    "flaky",       "prints",       "stack_overflow", "kill_always",
      "kill_itself", "slow",        "wrong_once"};
  Loaded module(broken_path("broken"));
  std::set<std::string> names;
  for (const attest_plugin* plugin = &module.plugin(); plugin; plugin = plugin->next)
    names.insert(plugin->name);
  EXPECT_EQ(names, expected);
}

TEST(Broken, AccidentsNeedTheirTrigger) {
  for (const char* name : {"segfault", "abort", "exit", "hang", "allocate", "stack_overflow",
                           "null_deref_after_malloc", "prints"}) {
    Call call;
    Loaded kernel(broken_path("broken"), name);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK) << name;
    EXPECT_TRUE(call.right()) << name;
  }
}

TEST(Broken, EachDoesItsOneThing) {
  {
    Call call;
    const auto before = call.q.bytes();
    Loaded kernel(broken_path("broken"), "modify_q");
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_NE(call.q.bytes(), before);
  }
  {
    Call call;
    Loaded kernel(broken_path("broken"), "skip_element");
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_TRUE(std::isnan(call.o.get({0, 1, 1, 1})));
    EXPECT_NEAR(call.o.get({0, 1, 1, 0}), call.expected(1, 1, 0), 1e-6);
  }
  {
    Call call;
    Loaded kernel(broken_path("broken"), "leak_nan");
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_TRUE(std::isnan(call.o.get({0, 0, 0, 0})));
    call.v.fill([](const Shape&) { return 1; });
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_TRUE(call.right());
  }
  {
    Call call;
    Loaded kernel(broken_path("broken"), "swallow_nan");
    call.v.set({0, 0, 0, 0}, NAN);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_EQ(call.o.get({0, 0, 0, 0}), 0);
  }
  {
    Call call;
    Loaded kernel(broken_path("broken"), "top_left");
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_EQ(call.o.get({0, 0, 0, 0}), call.v.get({0, 0, 0, 0}));  // sees key 0 alone
  }
}

TEST(Broken, StatusIsJunkOrRefusal) {
  Call call;
  EXPECT_EQ(Loaded(broken_path("broken"), "junk_status").forward(call.p), 77);
  EXPECT_EQ(Loaded(broken_path("broken"), "refuse_all").forward(call.p), ATTEST_UNSUPPORTED);
  call.p.softcap = 0.125;
  EXPECT_EQ(Loaded(broken_path("broken"), "prints").forward(call.p), ATTEST_UNSUPPORTED);
  EXPECT_EQ(Loaded(broken_path("broken"), "ignore_feature").forward(call.p), ATTEST_OK);
  EXPECT_TRUE(call.right());  // by the formula without the softcap
}

TEST(Broken, FlakyIsSometimesWrong) {
  Loaded kernel(broken_path("broken"), "flaky");
  int wrong = 0;
  constexpr int kCalls = 2000;
  for (int n = 0; n < kCalls; ++n) {
    Call call;
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    wrong += !call.right();
  }
  // 600 on average, by the clock; far beyond what a binomial law allows, should the clock be odd.
  EXPECT_GT(wrong, 100);
  EXPECT_LT(wrong, 1500);
}

TEST(Broken, ShorterStructEndsBeforeNext) {
  Loaded module(broken_path("shorter_struct"));
  EXPECT_EQ(module.plugin().struct_size, offsetof(attest_plugin, component));
  EXPECT_NE(module.plugin().next, nullptr);  // junk, which nobody may follow
  Call call;
  ASSERT_EQ(module.forward(call.p), ATTEST_OK);
  EXPECT_TRUE(call.right());
}

}  // namespace
}  // namespace attest::testing
