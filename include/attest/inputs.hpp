// SPDX-License-Identifier: Apache-2.0
// The values of one problem, dense and in double: what the oracle computes from and what the
// subject is given. Every value is one that the storage type holds exactly.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attest/problem.hpp"

namespace attest {

/// A dense row-major array of up to four axes. An axis of extent 1 broadcasts where the text says
/// so. A default- constructed one means "absent" (`present` is false), which differs from present
/// with no elements.
template <class T>
struct Dense {
  bool present = false;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::vector<T> values;

  Dense() = default;
  explicit Dense(std::array<std::int64_t, 4> extents)
      : present(true),
        shape(extents),
        values(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * extents[3])) {}

  std::size_t index(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d);
  }
  /// The same with axes of extent 1 broadcast.
  std::size_t broadcast_index(std::int64_t a, std::int64_t b, std::int64_t c,
                              std::int64_t d) const {
    return index(shape[0] == 1 ? 0 : a, shape[1] == 1 ? 0 : b, shape[2] == 1 ? 0 : c,
                 shape[3] == 1 ? 0 : d);
  }
  T& at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return values[index(a, b, c, d)];
  }
  const T& at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return values[index(a, b, c, d)];
  }
};

/// The inputs that have a gradient, or the gradients themselves: the same shapes.
template <class T>
struct RealTensors {
  Dense<T> q;       ///< [B, Hq, Lq, D]
  Dense<T> k;       ///< [B, Hkv, Lk, D]
  Dense<T> v;       ///< [B, Hkv, Lk, Dv]
  Dense<T> bias;    ///< [B|1, Hq|1, Lq|1, Lk|1], may hold -inf
  Dense<T> slopes;  ///< [B|1, Hq, 1, 1]
  Dense<T> sink;    ///< [1, Hq, 1, 1], may hold -inf
};

template <class T>
Dense<T>& tensor_of(RealTensors<T>& tensors, Gradient which) {
  Dense<T>* const all[] = {&tensors.q,    &tensors.k,      &tensors.v,
                           &tensors.bias, &tensors.slopes, &tensors.sink};
  return *all[static_cast<std::size_t>(which)];
}
template <class T>
const Dense<T>& tensor_of(const RealTensors<T>& tensors, Gradient which) {
  return tensor_of(const_cast<RealTensors<T>&>(tensors), which);
}

struct AttentionInputs : RealTensors<double> {
  Dense<std::uint8_t> mask;    ///< [B|1, Hq|1, Lq|1, Lk|1], 1 = visible
  Dense<std::uint8_t> blocks;  ///< [B|1, Hq|1, ceil(Lq/block_q), ceil(Lk/block_k)], 1 = visible
  Dense<std::uint8_t> keep;    ///< [B, Hq, Lq, Lk], 1 = kept by dropout
  Dense<double> d_o;           ///< backward: dO [B, Hq, Lq, Dv]
  Dense<double> d_lse;         ///< backward: dLSE [B, Hq, Lq, 1]; absent: 0
  Dense<double> o, lse;        ///< backward: what the kernel's forward gave, in its own encoding
};

}  // namespace attest
