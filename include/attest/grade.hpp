// SPDX-License-Identifier: Apache-2.0
// Judge the outputs of a call inside any C++ test:
//
//   attest::TensorRef q(q_data, {1, 8, 128, 64}), k(...), v(...), o(...);
//   attest_attention call = attest::attention_call(q, k, v, o);
//   call.base = ATTEST_BASE_CAUSAL;
//   const attest::Grade grade = attest::grade(call, "f32");
//   EXPECT_TRUE(grade.passed()) << grade.message;
//
// Link with attest::grade.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "attest/dtype.hpp"
#include "attest/plugin.h"
#include "attest/tensor.hpp"
#include "attest/verdict.hpp"

namespace attest {

/// A DLTensor over memory that the caller owns, contiguous unless strides (in elements) are given.
/// Not copyable: the DLTensor points into it.
class TensorRef {
 public:
  TensorRef(const void* data, DLDataType type, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides = {}) {
    for (const std::int64_t extent : shape) shape_[rank_++] = extent;
    std::int64_t stride = 1;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      strides_[axis] = stride;
      stride *= shape_[axis];
    }
    int axis = 0;
    for (const std::int64_t given : strides) strides_[axis++] = given;
    tensor_ = DLTensor{const_cast<void*>(data), {kDLCPU, 0}, rank_, type, shape_, strides_, 0};
  }
  TensorRef(const void* data, DType type, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides = {})
      : TensorRef(data, dl_dtype(type), shape, strides) {}
  TensorRef(const float* data, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides = {})
      : TensorRef(data, DType::f32, shape, strides) {}
  TensorRef(const double* data, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides = {})
      : TensorRef(data, DType::f64, shape, strides) {}
  TensorRef(const TensorRef&) = delete;
  TensorRef& operator=(const TensorRef&) = delete;

  DLTensor* get() { return &tensor_; }

 private:
  std::int64_t shape_[8] = {};
  std::int64_t strides_[8] = {};
  std::int32_t rank_ = 0;
  DLTensor tensor_{};
};

/// Plain attention over these tensors, scale 1/sqrt(D), no window. Set further fields as needed.
inline attest_attention attention_call(TensorRef& q, TensorRef& k, TensorRef& v, TensorRef& o) {
  attest_attention call{};
  call.struct_size = sizeof call;
  call.q = q.get();
  call.k = k.get();
  call.v = v.get();
  call.o = o.get();
  call.scale = 1 / std::sqrt(static_cast<double>(q.get()->shape[3]));
  call.window_left = call.window_right = -1;
  call.rope_scale = call.rope_ntk = 1;
  return call;
}

struct Grade {
  Verdict verdict = Verdict::error;  ///< pass, warn, fail, not_judged; error: the call is not legal
  Reason reason = Reason::none;
  std::string message;     ///< one line
  double worst_ratio = 0;  ///< err / tolerance over o and lse
  bool passed() const { return verdict == Verdict::pass || verdict == Verdict::warn; }
};

/// Judges call.o, and call.lse where given. `precision` is a preset name (docs/declaration.md).
ATTEST_EXPORT Grade grade(const attest_attention& call, const std::string& precision = "f32");

}  // namespace attest
