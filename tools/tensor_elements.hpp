// SPDX-License-Identifier: Apache-2.0
// Every element of a tensor, wherever its strides put it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attest/plugin.h"

namespace attest {

/// visit(place in row-major order, its bytes) for each element, the last axis innermost.
template <class Visit>
void for_each_element(const DLTensor& tensor, const Visit& visit) {
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  const std::int64_t size = tensor.dtype.bits / 8;
  std::size_t count = 1;
  for (std::size_t axis = 0; axis < rank; ++axis)
    count *= static_cast<std::size_t>(tensor.shape[axis]);
  std::vector<std::int64_t> index(rank);
  auto* const base = static_cast<std::byte*>(tensor.data);
  for (std::size_t flat = 0; flat < count; ++flat) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) offset += index[axis] * tensor.strides[axis];
    visit(flat, base + offset * size);
    for (std::size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < tensor.shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace attest
