// SPDX-License-Identifier: Apache-2.0
// What the implementations share because it is no part of attention: element types, the sizes of a
// call and whether its tensors agree with them, rows in and out of strided memory. Nothing here
// knows which key a query sees; each implementation has that to itself.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attest/dtype.hpp"
#include "attest/plugin.hpp"

namespace attest {

struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

inline double widen(double x) { return x; }
inline float widen(float x) { return x; }
inline float widen(F16 x) { return decode_f16(x.bits); }
inline float widen(Bf16 x) { return decode_bf16(x.bits); }

/// The type that a kernel of this storage type computes in: double for f64, else float.
template <class Storage>
using Compute = decltype(widen(Storage{}));

/// For the steps that are too delicate for the type of the computation.
inline double wide(double x) { return x; }
inline double wide(float x) { return x; }

template <class Storage>
Storage narrow(Compute<Storage> x) {
  if constexpr (std::is_same_v<Storage, F16>)
    return {encode_f16(x)};
  else if constexpr (std::is_same_v<Storage, Bf16>)
    return {encode_bf16(x)};
  else
    return x;
}

/// x as the storage type holds it: what a matrix unit of 16-bit inputs is fed. As it is where
/// Storage is the type of the computation.
template <class Storage>
Compute<Storage> rounded(Compute<Storage> x) {
  return widen(narrow<Storage>(x));
}

/// Calls body(Storage{}) with the type that the tensors of the call store.
template <class Body>
void with_storage(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64: return body(double{});
    case DType::f32: return body(float{});
    case DType::f16: return body(F16{});
    case DType::bf16: return body(Bf16{});
  }
}

/// The sizes of one call, checked against every tensor it carries.
struct Sizes {
  DType dtype;
  std::int64_t batch, heads, kv_heads, q_len, kv_len, dim, v_dim;
  std::int64_t group;      ///< query heads per key/value head
  std::int64_t sequences;  ///< segments of a packed batch, else `batch`
};

inline void check_tensor(const DLTensor* tensor, const char* name, DLDataType type,
                         std::initializer_list<std::int64_t> shape, bool broadcast = false) {
  if (!tensor) return;
  const auto wrong = [name](const char* what) {
    throw Invalid(std::string(name) + " has the wrong " + what);
  };
  if (tensor->ndim != static_cast<std::int32_t>(shape.size())) wrong("rank");
  if (tensor->dtype.code != type.code || tensor->dtype.bits != type.bits ||
      tensor->dtype.lanes != 1)
    wrong("type");
  int axis = 0;
  for (const std::int64_t extent : shape) {
    const std::int64_t given = tensor->shape[axis++];
    if (given != extent && !(broadcast && given == 1)) wrong("shape");
  }
}

/// Throws Unsupported for an element type that is none of the four, Invalid where tensors
/// contradict each other.
inline Sizes read_sizes(const attest_attention& p) {
  const auto dtype = dtype_of(p.q->dtype);
  if (!dtype) throw Unsupported("q has an element type that is not served");
  if (p.q->ndim != 4 || p.k->ndim != 4 || p.v->ndim != 4) throw Invalid("q, k, v have four axes");
  Sizes s{};
  s.dtype = *dtype;
  s.batch = p.q->shape[0], s.heads = p.q->shape[1], s.q_len = p.q->shape[2];
  s.kv_heads = p.k->shape[1], s.kv_len = p.k->shape[2];
  s.dim = p.q->shape[3], s.v_dim = p.v->shape[3];
  if (s.kv_heads < 1 || s.heads < 1 || s.heads % s.kv_heads != 0)
    throw Invalid("the number of heads is no multiple of the number of key/value heads");
  s.group = s.heads / s.kv_heads;
  if (!p.cu_seqlens_q != !p.cu_seqlens_k) throw Invalid("only one of cu_seqlens_q, cu_seqlens_k");
  if (p.cu_seqlens_q && s.batch != 1) throw Invalid("packed sequences need a batch of 1");
  s.sequences = p.cu_seqlens_q ? p.cu_seqlens_q->shape[0] - 1 : s.batch;
  if (s.sequences < 0) throw Invalid("cu_seqlens_q is empty");

  const DLDataType data = dl_dtype(s.dtype);
  const DLDataType wide = dl_dtype(s.dtype == DType::f64 ? DType::f64 : DType::f32);
  check_tensor(p.k, "k", data, {s.batch, s.kv_heads, s.kv_len, s.dim});
  check_tensor(p.v, "v", data, {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  check_tensor(p.o, "o", data, {s.batch, s.heads, s.q_len, s.v_dim});
  check_tensor(p.lse, "lse", wide, {s.batch, s.heads, s.q_len});
  check_tensor(p.bias, "bias", data, {s.batch, s.heads, s.q_len, s.kv_len}, true);
  check_tensor(p.mask, "mask", kDlUint8, {s.batch, s.heads, s.q_len, s.kv_len}, true);
  check_tensor(p.keep, "keep", kDlUint8, {s.batch, s.heads, s.q_len, s.kv_len});
  check_tensor(p.sink, "sink", wide, {s.heads});
  if (p.blocks) {
    if (p.block_q < 1 || p.block_k < 1) throw Invalid("blocks without block_q, block_k");
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); };
    check_tensor(p.blocks, "blocks", kDlUint8,
                 {s.batch, s.heads, ceil_div(s.q_len, p.block_q), ceil_div(s.kv_len, p.block_k)},
                 true);
  }
  if (p.alibi) {
    if (!p.alibi_slopes) throw Invalid("alibi without alibi_slopes");
    if (p.alibi_slopes->ndim == 2)
      check_tensor(p.alibi_slopes, "alibi_slopes", wide, {s.batch, s.heads});
    else
      check_tensor(p.alibi_slopes, "alibi_slopes", wide, {s.heads});
  }
  for (const auto& [tensor, name] :
       {std::pair{p.seqlens_q, "seqlens_q"}, std::pair{p.seqlens_k, "seqlens_k"},
        std::pair{p.left_pad_q, "left_pad_q"}, std::pair{p.left_pad_k, "left_pad_k"}}) {
    check_tensor(tensor, name, kDlInt32, {s.batch});
    if (tensor && p.cu_seqlens_q) throw Invalid(std::string(name) + " beside cu_seqlens");
  }
  check_tensor(p.cu_seqlens_q, "cu_seqlens_q", kDlInt32, {s.sequences + 1});
  check_tensor(p.cu_seqlens_k, "cu_seqlens_k", kDlInt32, {s.sequences + 1});
  // Without a sequence a list has no entries, and may as well be absent.
  const auto goes_with = [&](bool wanted, const DLTensor* list, const char* what) {
    if (wanted != (list != nullptr) && s.sequences > 0) throw Invalid(what);
  };
  goes_with(p.align == ATTEST_ALIGN_Q_OFFSET, p.q_offset, "q_offset goes with align=q_offset");
  goes_with(p.base == ATTEST_BASE_PREFIX, p.prefix_len, "prefix_len goes with base=prefix");
  check_tensor(p.q_offset, "q_offset", kDlInt32, {s.sequences});
  check_tensor(p.prefix_len, "prefix_len", kDlInt32, {s.sequences});
  if (p.window_left < -1 || p.window_right < -1 || p.global_tokens < 0)
    throw Invalid("a window or global_tokens is negative");
  if (!(p.softcap >= 0)) throw Invalid("softcap is negative");
  if (!(p.dropout_p >= 0 && p.dropout_p < 1)) throw Invalid("dropout_p is outside [0, 1)");
  if (p.rope) {
    if (p.rope_dim < 0 || p.rope_dim % 2 != 0 || p.rope_dim > s.dim)
      throw Invalid("rope_dim is negative, odd or above the head dim");
    if (!p.rope_cos || !p.rope_sin) throw Invalid("rope without its tables");
    check_tensor(p.rope_cos, "rope_cos", wide, {p.rope_cos->shape[0], p.rope_dim / 2});
    check_tensor(p.rope_sin, "rope_sin", wide, {p.rope_cos->shape[0], p.rope_dim / 2});
  }
  return s;
}

/// What a backward call carries beyond a forward one. Throws Invalid where it contradicts the rest.
inline void check_gradients(const attest_attention& p, const Sizes& s) {
  const DLDataType data = dl_dtype(s.dtype);
  const DLDataType wide = dl_dtype(s.dtype == DType::f64 ? DType::f64 : DType::f32);
  check_tensor(p.d_o, "d_o", data, {s.batch, s.heads, s.q_len, s.v_dim});
  check_tensor(p.d_lse, "d_lse", wide, {s.batch, s.heads, s.q_len});
  check_tensor(p.d_q, "d_q", data, {s.batch, s.heads, s.q_len, s.dim});
  check_tensor(p.d_k, "d_k", data, {s.batch, s.kv_heads, s.kv_len, s.dim});
  check_tensor(p.d_v, "d_v", data, {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  check_tensor(p.d_sink, "d_sink", wide, {s.heads});
  if (p.d_bias) {
    if (!p.bias) throw Invalid("d_bias without bias");
    const std::int64_t* const shape = p.bias->shape;
    check_tensor(p.d_bias, "d_bias", data, {shape[0], shape[1], shape[2], shape[3]});
  }
  if (p.d_alibi_slopes) {
    if (!p.alibi) throw Invalid("d_alibi_slopes without alibi");
    if (p.alibi_slopes->ndim == 2)
      check_tensor(p.d_alibi_slopes, "d_alibi_slopes", wide, {s.batch, s.heads});
    else
      check_tensor(p.d_alibi_slopes, "d_alibi_slopes", wide, {s.heads});
  }
  if (p.d_sink && !p.sink) throw Invalid("d_sink without sink");
}

/// n elements that lie `stride` apart, widened.
template <class Storage>
void load_row(const Storage* from, std::int64_t stride, std::int64_t n, Compute<Storage>* to) {
  if (stride == 1)
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen(from[i * stride]);
}

/// A view of a tensor whose elements the kernel reads or writes as Storage.
template <class Storage>
const Storage* row_of(const DLTensor* t, std::int64_t b, std::int64_t h, std::int64_t i) {
  return static_cast<const Storage*>(t->data) + b * t->strides[0] + h * t->strides[1] +
         i * t->strides[2];
}
template <class Storage>
Storage* output_row(const DLTensor* t, std::int64_t b, std::int64_t h, std::int64_t i) {
  return static_cast<Storage*>(t->data) + b * t->strides[0] + h * t->strides[1] + i * t->strides[2];
}

/// The other way: n values of the computation, each times `factor`, into a row that exists.
template <class Storage>
void store_row(const Compute<Storage>* from, Compute<Storage> factor, std::int64_t n, Storage* to,
               std::int64_t stride) {
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = narrow<Storage>(from[i] * factor);
}

/// 0 in every element of a tensor of four axes.
template <class Storage>
void write_zeros(const DLTensor* t) {
  for (std::int64_t b = 0; b < t->shape[0]; ++b)
    for (std::int64_t h = 0; h < t->shape[1]; ++h)
      for (std::int64_t i = 0; i < t->shape[2]; ++i)
        for (std::int64_t c = 0; c < t->shape[3]; ++c)
          output_row<Storage>(t, b, h, i)[c * t->strides[3]] = narrow<Storage>(0);
}

/// The gradient of a number per head, [Hq] or [B, Hq], from what each sequence adds to it:
/// parts[n * heads + h] for sequence n, which belongs to batch entry batch_of[n]. Added in the
/// order of the sequences, so that threads do not matter.
template <class C>
void sum_per_head(const std::vector<double>& parts, const std::vector<std::int64_t>& batch_of,
                  const DLTensor* to) {
  const std::int64_t heads = to->shape[to->ndim - 1];
  const std::int64_t entries = to->ndim == 2 ? to->shape[0] : 1;
  for (std::int64_t b = 0; b < entries; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      double sum = 0;
      for (std::size_t n = 0; n < batch_of.size(); ++n)
        if (to->ndim == 1 || batch_of[n] == b)
          sum += parts[n * static_cast<std::size_t>(heads) + static_cast<std::size_t>(h)];
      const TensorView<C> view(to);
      (to->ndim == 2 ? view(b, h) : view(h)) = static_cast<C>(sum);
    }
}

/// Scratch memory that a thread keeps between calls: a call of a few elements must cost
/// microseconds, and a fresh page costs 20 of them.
template <class T>
T* scratch(std::vector<T>& buffer, std::int64_t n) {
  if (buffer.size() < static_cast<std::size_t>(n)) buffer.resize(static_cast<std::size_t>(n));
  return buffer.data();
}

}  // namespace attest
