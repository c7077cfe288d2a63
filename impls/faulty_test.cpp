// SPDX-License-Identifier: Apache-2.0
// The library of planted faults: its catalogue is well formed, its honest kernels are right, and
// each fault is a change of its base that the same call can show.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "attest/faults.h"
#include "impls/random_gradients.hpp"

namespace attest::testing {
namespace {

std::string faulty_path() { return ATTEST_BINARY_DIR "/lib/attest-faulty/faulty.so"; }

const attest_fault* read_catalogue() {
  void* const library = dlopen(faulty_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;  // never closed: the catalogue lives in it
  const auto catalogue =
      reinterpret_cast<attest_fault_catalogue_function>(dlsym(library, "attest_fault_catalogue"));
  return catalogue ? catalogue() : nullptr;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

struct Catalogue : ::testing::Test {
  void SetUp() override {
    const attest_fault* fault = read_catalogue();
    ASSERT_NE(fault, nullptr);
    for (; fault; fault = fault->next) in_order.push_back(fault);
    for (const attest_fault* f : in_order) by_id[f->id] = f;
  }
  std::vector<const attest_fault*> in_order;
  std::map<std::string, const attest_fault*> by_id;
};

TEST_F(Catalogue, IsSortedByIdsThatAreWordsOfItsAlphabet) {
  EXPECT_EQ(by_id.size(), in_order.size()) << "an id occurs twice";
  for (std::size_t n = 1; n < in_order.size(); ++n)
    EXPECT_LT(std::string(in_order[n - 1]->id), in_order[n]->id);
  for (const attest_fault* f : in_order) {
    EXPECT_EQ(f->struct_size, sizeof *f);
    EXPECT_EQ(std::string(f->id).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
              std::string::npos)
        << f->id;
  }
}

TEST_F(Catalogue, SaysWhatEachIs) {
  for (const attest_fault* f : in_order) {
    ASSERT_TRUE(f->kind && f->sentence && f->reference && f->dtypes && f->base) << f->id;
    EXPECT_NE(f->kind[0], '\0') << f->id;
    EXPECT_GT(std::strlen(f->sentence), 5u) << f->id;
    std::set<std::string> types;
    for (const std::string& type : split(f->dtypes)) {
      EXPECT_TRUE(parse_dtype(type)) << f->id << " lists " << type;
      EXPECT_TRUE(types.insert(type).second) << f->id << " lists twice " << type;
    }
  }
}

TEST_F(Catalogue, EveryBaseIsHonestAndServesTheSameTypes) {
  for (const attest_fault* f : in_order) {
    ASSERT_TRUE(by_id.contains(f->base)) << f->id << " starts from " << f->base;
    const attest_fault& base = *by_id[f->base];
    EXPECT_TRUE(base.honest) << f->id << " starts from " << f->base;
    EXPECT_TRUE(!f->honest || std::string(f->base) == f->id) << f->id;
    const std::vector<std::string> served = split(base.dtypes);
    for (const std::string& type : split(f->dtypes))
      EXPECT_TRUE(std::find(served.begin(), served.end(), type) != served.end())
          << f->id << "." << type << " has no " << f->base << "." << type;
  }
}

TEST_F(Catalogue, IsLargeEnoughToMeasureWith) {
  std::size_t honest = 0;
  for (const attest_fault* f : in_order) honest += f->honest;
  EXPECT_GE(honest, 20u);
  EXPECT_GE(in_order.size() - honest, 150u);
}

TEST_F(Catalogue, NamesExactlyTheKernelsOfTheLibrary) {
  std::map<std::string, std::string> named, there;  // name: dtypes
  for (const attest_fault* f : in_order) {
    for (const std::string& type : split(f->dtypes)) named[f->id + ("." + type)] = type;
    if (f->honest) named[f->id] = f->dtypes;
  }
  Loaded module(faulty_path());
  for (const attest_plugin* kernel = &module.plugin(); kernel; kernel = kernel->next) {
    const std::string declaration = kernel->declaration;
    ASSERT_EQ(declaration.find("dtype="), 0u) << kernel->name;
    const std::string types = declaration.substr(6, declaration.find(' ') - 6);
    EXPECT_TRUE(there.emplace(kernel->name, types).second) << kernel->name << " is there twice";
  }
  EXPECT_EQ(named, there);
}

// Templates of one name in two files are one to the linker, unnamed namespaces or not: one kernel
// would then stand for both.
TEST_F(Catalogue, EveryKernelHasCodeOfItsOwn) {
  std::map<void*, std::string> there;
  Loaded module(faulty_path());
  for (const attest_plugin* kernel = &module.plugin(); kernel; kernel = kernel->next) {
    if (std::string(kernel->name).rfind("l_from_rounded_undeclared", 0) == 0) continue;  // is meant
    const auto [known, is_new] = there.emplace(reinterpret_cast<void*>(kernel->open), kernel->name);
    EXPECT_TRUE(is_new) << kernel->name << " is " << known->second;
  }
}

/// Two heads on one, three queries, five keys; causal, bottom right.
struct Call {
  explicit Call(DType type)
      : q{dl_dtype(type), {1, 2, 3, 4}},
        k{dl_dtype(type), {1, 1, 5, 4}},
        v{dl_dtype(type), {1, 1, 5, 2}},
        o{dl_dtype(type), {1, 2, 3, 2}},
        lse{dl_dtype(type == DType::f64 ? DType::f64 : DType::f32), {1, 2, 3}} {
    Numbers numbers(5);
    for (Tensor* t : {&q, &k, &v}) t->fill([&](const Shape&) { return numbers.real(-2, 2); });
    p.q = q.dl(), p.k = k.dl(), p.v = v.dl(), p.o = o.dl(), p.lse = lse.dl();
    p.base = ATTEST_BASE_CAUSAL;
    p.scale = 0.75;
  }

  /// By the formula; the sum of |o - expected| and |lse - expected|.
  double distance() {
    double distance = 0;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 3; ++i) {
        double sum = 0, out[2] = {};
        for (std::int64_t j = 0; j <= i + 2; ++j) {
          double z = 0;
          for (std::int64_t c = 0; c < 4; ++c) z += q.get({0, h, i, c}) * k.get({0, 0, j, c});
          sum += std::exp(p.scale * z);
          for (std::int64_t c = 0; c < 2; ++c)
            out[c] += std::exp(p.scale * z) * v.get({0, 0, j, c});
        }
        distance += std::fabs(lse.get({0, h, i}) - std::log(sum));
        for (std::int64_t c = 0; c < 2; ++c)
          distance += std::fabs(o.get({0, h, i, c}) - out[c] / sum);
      }
    return distance;
  }

  Tensor q, k, v, o, lse;
  attest_attention p = plain_call();
};

TEST_F(Catalogue, HonestKernelsAreRight) {
  for (const attest_fault* f : in_order) {
    if (!f->honest || std::string(f->id) == "plain") continue;  // which has no gqa
    for (const std::string& type : split(f->dtypes)) {
      Call call(*parse_dtype(type));
      Loaded kernel(faulty_path(), f->id + ("." + type));
      const std::string declaration = kernel.plugin().declaration;
      if (declaration.find(" forward=none ") != std::string::npos) continue;
      ASSERT_EQ(kernel.forward(call.p), ATTEST_OK) << f->id << ": " << kernel.message();
      EXPECT_LT(call.distance(), 0.1) << f->id << "." << type;
    }
  }
}

TEST_F(Catalogue, AKernelServesItsOneTypeAlone) {
  Loaded kernel(faulty_path(), "stepwise.f32");
  Call call(DType::bf16);
  EXPECT_EQ(kernel.forward(call.p), ATTEST_UNSUPPORTED);
}

TEST_F(Catalogue, AFaultIsAnotherAnswer) {
  for (const char* id : {"causal_plus_one", "scale_missing", "l_misses_last_key", "lse_base_2",
                         "tail_lanes_in_denominator", "second_call_differs"}) {
    Call call(DType::f32);
    Loaded kernel(faulty_path(), id + std::string(".f32"));
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    ASSERT_EQ(kernel.forward(call.p), ATTEST_OK);
    EXPECT_GT(call.distance(), 0.1) << id;
  }
}

/// Whether a kernel's declaration has backward.
bool declares_backward(const std::string& kernel) {
  Loaded loaded(faulty_path(), kernel);
  return std::string(loaded.plugin().declaration).find(" backward=all ") != std::string::npos;
}

/// Random call number `seed`, from forward to gradients.
std::unique_ptr<RandomCall> gradients_of(Loaded& kernel, std::uint64_t seed, DType type) {
  auto call = random_call(seed, type);
  add_gradients(*call, seed);
  EXPECT_EQ(kernel.forward(call->p), ATTEST_OK) << kernel.message();
  EXPECT_EQ(kernel.backward(call->p), ATTEST_OK) << kernel.message();
  return call;
}

TEST_F(Catalogue, BackwardIsServedWhereItIsDeclared) {
  int served = 0;
  for (const attest_fault* f : in_order) {
    const std::string name = f->id + ("." + split(f->dtypes).front());
    // What a fault does with its null pointers is the selftest's to see.
    if (!f->honest && declares_backward(name)) continue;
    Loaded kernel(faulty_path(), name);
    const auto call = random_call(1, *parse_dtype(split(f->dtypes).front()));
    add_gradients(*call, 1);
    if (declares_backward(name)) {
      ASSERT_EQ(kernel.forward(call->p), ATTEST_OK) << name << ": " << kernel.message();
      EXPECT_EQ(kernel.backward(call->p), ATTEST_OK) << name << ": " << kernel.message();
      ++served;
    } else {
      EXPECT_EQ(kernel.backward(call->p), ATTEST_UNSUPPORTED) << name;
    }
  }
  EXPECT_EQ(served, 6);
}

TEST_F(Catalogue, FaultsOfBackwardLeaveForwardAlone) {
  int faults = 0;
  for (const attest_fault* f : in_order) {
    const std::string type = split(f->dtypes).front(), name = f->id + ("." + type);
    if (f->honest || !declares_backward(name)) continue;
    ++faults;
    Loaded kernel(faulty_path(), name), base(faulty_path(), f->base + ("." + type));
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const auto call = random_call(seed, *parse_dtype(type)),
                 same = random_call(seed, *parse_dtype(type));
      ASSERT_EQ(kernel.forward(call->p), ATTEST_OK) << name;
      ASSERT_EQ(base.forward(same->p), ATTEST_OK) << name;
      EXPECT_EQ((*call)["o"].bytes(), (*same)["o"].bytes()) << name;
    }
  }
  EXPECT_GE(faults, 80);
}

TEST_F(Catalogue, AFaultOfBackwardIsAnotherGradient) {
  for (const char* id : {"delta_dropped", "dk_scale_missing", "causal_lost_in_backward",
                         "gqa_grad_not_summed", "gradient_silently_zero", "dropout_mask_differs"}) {
    Loaded kernel(faulty_path(), id + std::string(".f32")), base(faulty_path(), "backward.f32");
    int changed = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const auto is = gradients_of(kernel, seed, DType::f32);
      const auto was = gradients_of(base, seed, DType::f32);
      for (const char* input : kDifferentiable) {
        const std::string gradient = std::string("d_") + input;
        if (is->has(gradient)) changed += (*is)[gradient].bytes() != (*was)[gradient].bytes();
      }
    }
    EXPECT_GT(changed, 0) << id;
  }
}

}  // namespace
}  // namespace attest::testing
