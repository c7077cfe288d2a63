// SPDX-License-Identifier: Apache-2.0
// A strided view of one tensor: the C++ face of a DLTensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attest/dtype.hpp"
#include "attest/plugin.h"

namespace attest {

/// The storage type of a DLPack floating-point type; nullopt for any other.
constexpr std::optional<DType> dtype_of(DLDataType type) {
  if (type.lanes != 1) return std::nullopt;
  if (type.code == kDLBfloat && type.bits == 16) return DType::bf16;
  if (type.code != kDLFloat) return std::nullopt;
  if (type.bits == 64) return DType::f64;
  if (type.bits == 32) return DType::f32;
  if (type.bits == 16) return DType::f16;
  return std::nullopt;
}

constexpr DLDataType dl_dtype(DType type) {
  const auto code = static_cast<std::uint8_t>(type == DType::bf16 ? kDLBfloat : kDLFloat);
  return {code, static_cast<std::uint8_t>(8 * size_of(type)), 1};
}
inline constexpr DLDataType kDlUint8{static_cast<std::uint8_t>(kDLUInt), 8, 1};
inline constexpr DLDataType kDlInt32{static_cast<std::uint8_t>(kDLInt), 32, 1};

/// Elements of T at data[i0*stride0 + i1*stride1 + ...]. T is float, double, std::uint16_t (f16 and
/// bf16 bits), std::uint8_t or std::int32_t, const for inputs. A null view (absent tensor) is
/// false.
template <class T>
class TensorView {
 public:
  TensorView() = default;
  explicit TensorView(const DLTensor* tensor) : tensor_(tensor) {
    if (tensor_) data_ = static_cast<T*>(tensor_->data);
  }

  explicit operator bool() const { return tensor_ != nullptr; }
  int rank() const { return tensor_->ndim; }
  std::int64_t extent(int axis) const { return tensor_->shape[axis]; }
  std::int64_t stride(int axis) const { return tensor_->strides[axis]; }

  template <class... Index>
  T& operator()(Index... indices) const {
    std::int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<std::int64_t>(indices) * tensor_->strides[axis++]), ...);
    return data_[offset];
  }

  /// The same, with axes of extent 1 broadcast.
  template <class... Index>
  T& broadcast(Index... indices) const {
    std::int64_t offset = 0;
    int axis = 0;
    ((offset += tensor_->shape[axis] == 1
                    ? (++axis, 0)
                    : static_cast<std::int64_t>(indices) * tensor_->strides[axis++]),
     ...);
    return data_[offset];
  }

 private:
  const DLTensor* tensor_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace attest
