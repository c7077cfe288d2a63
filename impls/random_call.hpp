// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: small calls that draw on every feature. Their answers:
// impls/plain_answer.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "impls/testing.hpp"

namespace attest::testing {

struct SequenceRows {
  std::int64_t b, q0, q1, k0, k1;
};

struct RandomCall {
  attest_attention p = plain_call();
  DType dtype;
  std::map<std::string, std::unique_ptr<Tensor>> tensors;
  std::vector<SequenceRows> sequences;

  Tensor& operator[](const std::string& name) { return *tensors.at(name); }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }
  Tensor& add(const std::string& name, DLDataType type, Shape shape, std::vector<int> order = {},
              std::int64_t gap = 0) {
    return *(tensors[name] = std::make_unique<Tensor>(type, std::move(shape), order, gap));
  }
};

inline double rope_angle(const attest_attention& p, std::int64_t position, std::int64_t t) {
  const auto dims = static_cast<double>(p.rope_dim);
  double base = p.rope_base;
  if (p.rope_ntk != 1) base *= std::pow(p.rope_ntk, dims / (dims - 2));
  return static_cast<double>(position) / p.rope_scale *
         std::pow(base, -2 * static_cast<double>(t) / dims);
}

inline std::int64_t offset_of(RandomCall& call, std::size_t sequence) {
  const SequenceRows& rows = call.sequences[sequence];
  if (call.p.align == ATTEST_ALIGN_TOP_LEFT) return 0;
  if (call.p.align == ATTEST_ALIGN_BOTTOM_RIGHT) return (rows.k1 - rows.k0) - (rows.q1 - rows.q0);
  return static_cast<std::int64_t>(call["q_offset"].get({static_cast<std::int64_t>(sequence)}));
}

/// Lengths, pads or segments, and what follows from them.
inline void draw_sequences(RandomCall& call, Numbers& numbers, std::int64_t batch,
                           std::int64_t q_len, std::int64_t kv_len) {
  attest_attention& p = call.p;
  if (numbers.one_in(5)) {  // packed, with segments that may be empty and rows left over
    const std::int64_t segments = numbers.between(0, 3);
    Tensor& cu_q = call.add("cu_seqlens_q", kDlInt32, {segments + 1});
    Tensor& cu_k = call.add("cu_seqlens_k", kDlInt32, {segments + 1});
    p.cu_seqlens_q = cu_q.dl(), p.cu_seqlens_k = cu_k.dl();
    std::int64_t q = 0, k = 0;
    cu_q.set({0}, 0), cu_k.set({0}, 0);
    for (std::int64_t n = 1; n <= segments; ++n) {
      const std::int64_t q1 = numbers.between(q, q_len), k1 = numbers.between(k, kv_len);
      cu_q.set({n}, static_cast<double>(q1)), cu_k.set({n}, static_cast<double>(k1));
      call.sequences.push_back({0, q, q1, k, k1});
      q = q1, k = k1;
    }
    return;
  }
  for (std::int64_t b = 0; b < batch; ++b) call.sequences.push_back({b, 0, q_len, 0, kv_len});
  const auto draw = [&](const char* name, const DLTensor*& field, auto&& row, auto&& low,
                        auto&& high) {
    if (!numbers.one_in(4)) return;
    Tensor& tensor = call.add(name, kDlInt32, {batch});
    field = tensor.dl();
    for (SequenceRows& rows : call.sequences) {
      row(rows) = numbers.between(low(rows), high(rows));
      tensor.set({rows.b}, static_cast<double>(row(rows)));
    }
  };
  const auto zero = [](const SequenceRows&) { return std::int64_t{0}; };
  const auto q0 = [](auto& rows) -> auto& { return rows.q0; };
  const auto q1 = [](auto& rows) -> auto& { return rows.q1; };
  const auto k0 = [](auto& rows) -> auto& { return rows.k0; };
  const auto k1 = [](auto& rows) -> auto& { return rows.k1; };
  draw("seqlens_q", p.seqlens_q, q1, zero, [&](auto&) { return q_len; });
  draw("seqlens_k", p.seqlens_k, k1, zero, [&](auto&) { return kv_len; });
  draw("left_pad_q", p.left_pad_q, q0, zero, q1);
  draw("left_pad_k", p.left_pad_k, k0, zero, k1);
}

/// The same where each sequence's queries are the last of its keys, as decoding has it.
inline void draw_cached_sequences(RandomCall& call, Numbers& numbers, std::int64_t batch,
                                  std::int64_t q_len, std::int64_t kv_len) {
  const bool lengths_q = numbers.one_in(2), lengths_k = numbers.one_in(2);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t rows = lengths_q ? numbers.between(0, q_len) : q_len;
    call.sequences.push_back({b, 0, rows, 0, lengths_k ? numbers.between(rows, kv_len) : kv_len});
  }
  Tensor& ends_k = call.add("seqlens_k", kDlInt32, {batch});
  ends_k.fill([&](const Shape& b) { return call.sequences[static_cast<std::size_t>(b[0])].k1; });
  call.p.seqlens_k = ends_k.dl();
  if (!lengths_q) return;
  Tensor& ends_q = call.add("seqlens_q", kDlInt32, {batch});
  ends_q.fill([&](const Shape& b) { return call.sequences[static_cast<std::size_t>(b[0])].q1; });
  call.p.seqlens_q = ends_q.dl();
}

/// Call number `seed`. Rows that must not be read hold 0xff bytes. With `cached` one that a decode
/// call can be made of (impls/random_decode.hpp).
inline std::unique_ptr<RandomCall> random_call(std::uint64_t seed, DType dtype,
                                               bool cached = false) {
  Numbers numbers(seed);
  auto made = std::make_unique<RandomCall>();
  RandomCall& call = *made;
  attest_attention& p = call.p;
  call.dtype = dtype;
  const DLDataType data = dl_dtype(dtype);
  const DLDataType wide = dl_dtype(dtype == DType::f64 ? DType::f64 : DType::f32);

  // Some sequences longer than the 64 keys of a block and the 32 rows of a tile.
  const auto length = [&] {
    return numbers.one_in(8) ? numbers.between(60, 140)
                             : numbers.between(numbers.one_in(8) ? 0 : 1, 9);
  };
  const std::int64_t q_len = length(), other = length();
  const std::int64_t kv_len = cached ? std::max(q_len, other) : other;
  const std::int64_t kv_heads = numbers.between(1, 2), heads = kv_heads * numbers.between(1, 3);
  const std::int64_t dim = numbers.one_in(4) ? numbers.between(17, 40) : numbers.between(1, 8);
  const std::int64_t v_dim = numbers.one_in(2) ? dim : numbers.between(0, 20);
  std::int64_t batch = numbers.between(1, 3);
  (cached ? draw_cached_sequences : draw_sequences)(call, numbers, batch, q_len, kv_len);
  if (p.cu_seqlens_q) batch = 1;

  const std::vector<std::vector<int>> orders = {{}, {0, 2, 1, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}};
  const auto tensor = [&](const char* name, DLDataType type, Shape shape) -> Tensor& {
    const bool four = shape.size() == 4;
    return call.add(
        name, type, std::move(shape),
        four ? orders[static_cast<std::size_t>(numbers.between(0, 3))] : std::vector<int>{},
        numbers.one_in(2) ? 0 : numbers.between(1, 5));
  };
  const auto real_row = [&](std::int64_t b, std::int64_t row, bool query) {
    for (const SequenceRows& rows : call.sequences)
      if (rows.b == b && row >= (query ? rows.q0 : rows.k0) && row < (query ? rows.q1 : rows.k1))
        return true;
    return false;
  };

  Tensor& q = tensor("q", data, {batch, heads, q_len, dim});
  Tensor& k = tensor("k", data, {batch, kv_heads, kv_len, dim});
  Tensor& v = tensor("v", data, {batch, kv_heads, kv_len, v_dim});
  for (Tensor* t : {&q, &k, &v})
    t->fill([&](const Shape& at) {
      const double value = numbers.real(-2, 2);
      return real_row(at[0], at[2], t == &q) ? value : std::nan("");
    });
  p.q = q.dl(), p.k = k.dl(), p.v = v.dl();
  p.o = tensor("o", data, {batch, heads, q_len, v_dim}).dl();
  if (!numbers.one_in(5)) p.lse = tensor("lse", wide, {batch, heads, q_len}).dl();

  p.scale = numbers.one_in(3) ? numbers.real(-1, 1) : 1 / std::sqrt(static_cast<double>(dim));
  if (numbers.one_in(4)) p.softcap = numbers.real(0.5, 5);
  p.base = static_cast<std::int32_t>(numbers.between(0, 2));
  p.align = cached ? ATTEST_ALIGN_BOTTOM_RIGHT : static_cast<std::int32_t>(numbers.between(0, 2));
  const auto num_sequences = static_cast<std::int64_t>(call.sequences.size());
  if (p.align == ATTEST_ALIGN_Q_OFFSET) {
    Tensor& offsets = call.add("q_offset", kDlInt32, {num_sequences});
    offsets.fill(
        [&](const Shape&) { return static_cast<double>(numbers.between(-3, kv_len + 3)); });
    p.q_offset = offsets.dl();
  }
  if (p.base == ATTEST_BASE_PREFIX) {
    Tensor& prefixes = call.add("prefix_len", kDlInt32, {num_sequences});
    prefixes.fill(
        [&](const Shape&) { return static_cast<double>(numbers.between(0, kv_len + 2)); });
    p.prefix_len = prefixes.dl();
  }
  if (numbers.one_in(3)) {
    p.window_left = numbers.one_in(8) ? std::numeric_limits<std::int64_t>::max()
                                      : numbers.between(-1, kv_len + 1);
    p.window_right = numbers.between(-1, kv_len + 1);
    if (numbers.one_in(2) && (p.window_left >= 0 || p.window_right >= 0))
      p.global_tokens = numbers.between(1, 4);
  }

  const auto axes = [&](Shape shape) {
    for (std::int64_t& extent : shape)
      if (numbers.one_in(4)) extent = 1;
    return shape;
  };
  const Shape pairs{batch, heads, q_len, kv_len};
  const bool pairs_exist = q_len > 0 && kv_len > 0;
  // Entries of rows that are not real stay NaN or 0xff where no broadcast axis shares them.
  const auto pair_is_real = [&](Tensor& t, const Shape& at) {
    return t.extent(0) != batch || t.extent(2) != q_len || t.extent(3) != kv_len ||
           (real_row(at[0], at[2], true) && real_row(at[0], at[3], false));
  };
  if (pairs_exist && numbers.one_in(4)) {
    Tensor& mask = tensor("mask", kDlUint8, axes(pairs));
    mask.fill([&](const Shape& at) {
      const bool bit = numbers.one_in(2);
      return pair_is_real(mask, at) ? bit : 0xa5;
    });
    p.mask = mask.dl();
  }
  if (pairs_exist && numbers.one_in(4)) {
    p.block_q = numbers.between(1, 5), p.block_k = numbers.between(1, 5);
    Shape shape{batch, heads, (q_len + p.block_q - 1) / p.block_q,
                (kv_len + p.block_k - 1) / p.block_k};
    if (numbers.one_in(2)) shape[0] = 1;
    if (numbers.one_in(2)) shape[1] = 1;
    Tensor& blocks = tensor("blocks", kDlUint8, shape);
    blocks.fill([&](const Shape&) { return !numbers.one_in(3); });
    p.blocks = blocks.dl();
  }
  if (pairs_exist && numbers.one_in(4)) {
    Tensor& bias = tensor("bias", data, axes(pairs));
    bias.fill([&](const Shape& at) {
      const double value = numbers.one_in(5) ? -HUGE_VAL : numbers.real(-1, 1);
      return pair_is_real(bias, at) ? value : std::nan("");
    });
    p.bias = bias.dl();
  }
  if (!cached && numbers.one_in(5)) {
    Tensor& keep = tensor("keep", kDlUint8, pairs);
    keep.fill([&](const Shape& at) {
      const bool bit = numbers.one_in(2);
      return pair_is_real(keep, at) ? bit : 0xa5;
    });
    p.keep = keep.dl();
    p.dropout_p = 0.25;
  }
  if (numbers.one_in(3)) {
    p.alibi = static_cast<std::int32_t>(numbers.between(1, 3));
    p.alibi_inside_softcap = p.softcap > 0 && numbers.one_in(2);
    Tensor& slopes = numbers.one_in(2) ? tensor("alibi_slopes", wide, {heads})
                                       : tensor("alibi_slopes", wide, {batch, heads});
    slopes.fill([&](const Shape&) { return numbers.real(0, 0.5); });
    p.alibi_slopes = slopes.dl();
  }
  if (numbers.one_in(4)) {
    Tensor& sink = tensor("sink", wide, {heads});
    sink.fill([&](const Shape&) { return numbers.one_in(3) ? -HUGE_VAL : numbers.real(-2, 4); });
    p.sink = sink.dl();
  }
  if (dim >= 2 && numbers.one_in(3)) {
    p.rope = static_cast<std::int32_t>(numbers.between(1, 2));
    p.rope_dim = 2 * numbers.between(1, dim / 2);
    p.rope_base = 10000;
    p.rope_scale = numbers.one_in(3) ? 4 : 1;
    p.rope_ntk = p.rope_dim > 2 && numbers.one_in(3) ? 2 : 1;
    // A decode call's tables may begin anywhere before its first position.
    std::int64_t first = cached ? -numbers.between(0, 3) : 0, last = kv_len;
    for (std::size_t n = 0; n < call.sequences.size(); ++n) {
      first = std::min(first, offset_of(call, n));
      last = std::max(last, offset_of(call, n) + q_len);
    }
    p.rope_position = first;
    const Shape shape{last - first + 1, p.rope_dim / 2};
    Tensor& cosines = tensor("rope_cos", wide, shape);
    Tensor& sines = tensor("rope_sin", wide, shape);
    cosines.fill([&](const Shape& at) { return std::cos(rope_angle(p, first + at[0], at[1])); });
    sines.fill([&](const Shape& at) { return std::sin(rope_angle(p, first + at[0], at[1])); });
    p.rope_cos = cosines.dl(), p.rope_sin = sines.dl();
  }
  return made;
}

}  // namespace attest::testing
