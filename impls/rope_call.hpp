// SPDX-License-Identifier: Apache-2.0
// What implementations of the rotary embedding alone share because it is no part of it: checks of
// the tensors, rows in and out of strided memory, threads.
#pragma once

#include <cstdint>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/parallel.hpp"
#include "impls/storage.hpp"

namespace attest {

/// Throws Unsupported for an element type that is none of the four, Invalid where tensors
/// contradict each other.
inline DType check_rope_call(const RopeCall& call) {
  if (!call.x || !call.y || !call.positions || !call.cos || !call.sin)
    throw Invalid("x, y, positions, cos and sin must all be given");
  const auto dtype = dtype_of(call.x->dtype);
  if (!dtype) throw Unsupported("x has an element type that is not served");
  if (call.x->ndim != 4) throw Invalid("x has four axes");
  const std::int64_t* const shape = call.x->shape;
  if (call.rope_dim < 0 || call.rope_dim % 2 != 0 || call.rope_dim > shape[3])
    throw Invalid("rope_dim is negative, odd or above the head dim");
  const DLDataType wide = dl_dtype(*dtype == DType::f64 ? DType::f64 : DType::f32);
  check_tensor(call.y, "y", call.x->dtype, {shape[0], shape[1], shape[2], shape[3]});
  check_tensor(call.positions, "positions", kDlInt32, {shape[0], shape[2]});
  check_tensor(call.cos, "cos", wide, {call.cos->shape[0], call.rope_dim / 2});
  check_tensor(call.sin, "sin", wide, {call.cos->shape[0], call.rope_dim / 2});
  return *dtype;
}

/// turn(row, position) for every row, of which the first rope_dim channels lie in `row`, widened;
/// then rounds them to the type of y. The other channels go over as they are.
template <class Storage, class Turn>
void for_each_turned_row(const RopeCall& call, const Context& context, Turn&& turn) {
  using C = Compute<Storage>;
  const std::int64_t* const shape = call.x->shape;
  const std::int64_t heads = shape[1], rows = shape[2];
  const std::int64_t in = call.x->strides[3], out = call.y->strides[3];
  const TensorView<const std::int32_t> positions(call.positions);
  parallel_for(shape[0] * heads, context.num_threads, [&](std::int64_t item) {
    thread_local std::vector<C> buffer;
    const std::int64_t b = item / heads, h = item % heads;
    for (std::int64_t i = 0; i < rows; ++i) {
      const Storage* const from = row_of<Storage>(call.x, b, h, i);
      Storage* const to = output_row<Storage>(call.y, b, h, i);
      C* const row = scratch(buffer, call.rope_dim);
      load_row(from, in, call.rope_dim, row);
      turn(row, std::int64_t{positions(b, i)});
      store_row(row, C{1}, call.rope_dim, to, out);
      for (std::int64_t c = call.rope_dim; c < shape[3]; ++c) to[c * out] = from[c * in];
    }
  });
}

}  // namespace attest
