/* SPDX-License-Identifier: Apache-2.0
 * attest/plugin.h - the contract between Attest and a kernel. C11 or C++17, no other file needed.
 *
 * A plug-in is a shared library that exports one function, attest_plugin_entry(). `attest check
 * ./libmine.so` loads it in a child process, reads its declaration and calls it. What every
 * quantity means: docs/semantics.md.
 *
 * Rules for every call
 *  - Structs start with struct_size as their *writer* compiled it. A reader treats fields beyond it
 * as 0, so both sides may be older or newer than the other. These structs never stand in arrays by
 * value.
 *  - No exception, longjmp or exit crosses a call.
 *  - Tensors: byte_offset is 0; strides are given (never NULL), in elements, may be 0 on inputs,
 * and may exceed the padded size; data is never NULL, also where a tensor has no elements. data is
 * aligned to attest_plugin.alignment bytes, not to the 256 that DLPack's text speaks of. Booleans
 * are uint8, 0 or 1.
 *  - Inputs are const; the type cannot say so (DLTensor.data is void*), so the suite checks it.
 *  - Integer tensors (seqlens, cu_seqlens, offsets) are int32 and always in host memory.
 *  - An input that is NULL is absent. An output that is NULL is not wanted. Outputs come filled
 * with junk, and every element that they have must be written; bytes between elements must not be.
 *  - What the kernel was not declared to do must be refused with ATTEST_UNSUPPORTED, never ignored.
 *  - Work is enqueued on context->stream; the suite synchronises.
 */
#ifndef ATTEST_PLUGIN_H_
#define ATTEST_PLUGIN_H_

#include <stdint.h>

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define ATTEST_HAS_DLPACK 1
#endif
#endif

#ifndef ATTEST_HAS_DLPACK
/* The layout of DLPack 0.6 to 1.x, so that a plug-in needs no other package. */
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLROCM = 10 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
#ifdef __cplusplus
}
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_ABI_VERSION 1u

/* Fixed width, since the size of an enum is no part of a C ABI. Any other value is the verdict
 * `junk_status`. */
typedef int32_t attest_status;
#define ATTEST_OK 0
#define ATTEST_UNSUPPORTED 1 /* this problem is not served; say why in context->message */
#define ATTEST_INVALID 2     /* this problem contradicts itself */
#define ATTEST_OUT_OF_MEMORY 3
#define ATTEST_FAILED 4

/* The caller's side of one call, valid during the call only. */
typedef struct attest_context {
  uint32_t struct_size;
  int32_t num_threads; /* >= 1; use no more */
  void* stream;        /* cudaStream_t and the like; NULL on a CPU */
  void* workspace; /* workspace_bytes of junk, aligned to 256 bytes; NULL when none was asked for */
  uint64_t workspace_bytes;
  char* message; /* UTF-8, NUL-terminated; may be written on any status but ATTEST_OK */
  uint64_t message_capacity;
} attest_context;

/* attest_attention.base: which keys a query sees before anything else is applied. */
#define ATTEST_BASE_FULL 0
#define ATTEST_BASE_CAUSAL 1
#define ATTEST_BASE_PREFIX 2
/* attest_attention.align: where query row 0 stands among the keys when q_len differs from kv_len.
 */
#define ATTEST_ALIGN_BOTTOM_RIGHT 0 /* the last query stands at the last key */
#define ATTEST_ALIGN_TOP_LEFT 1     /* the first query stands at the first key */
#define ATTEST_ALIGN_Q_OFFSET 2     /* q_offset says */
/* attest_attention.alibi */
#define ATTEST_ALIBI_NONE 0
#define ATTEST_ALIBI_ABSOLUTE 1     /* -slope * |qpos - kpos| */
#define ATTEST_ALIBI_SIGNED 2       /* slope * (kpos - qpos) */
#define ATTEST_ALIBI_KEY_ANCHORED 3 /* slope * kpos */
/* attest_attention.rope */
#define ATTEST_ROPE_NONE 0
#define ATTEST_ROPE_INTERLEAVED 1 /* pairs of channels (2t, 2t+1) */
#define ATTEST_ROPE_HALF 2        /* pairs of channels (t, t + rope_dim/2) */
/* attest_attention.cache: where position p of sequence b lies */
#define ATTEST_CACHE_CONTIGUOUS 0 /* row p of entry b */
#define ATTEST_CACHE_RING 1       /* row p mod C of entry b */
#define ATTEST_CACHE_PAGED 2      /* row p mod page_size of page block_table[b][p / page_size] */

/* One attention call, forward where nothing else is said. With q, k, v, o, scale and both windows
 * (-1) set and all else 0 it is plain attention. Shapes are logical; the memory order is whatever
 * the strides say. "Storage type" is the element type of q. */
typedef struct attest_attention {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */

  const DLTensor* q; /* [B, Hq, Lq, D] */
  const DLTensor* k; /* [B, Hkv, Lk, D] */
  const DLTensor* v; /* [B, Hkv, Lk, Dv] */
  DLTensor* o;       /* [B, Hq, Lq, Dv] */
  DLTensor* lse; /* [B, Hq, Lq], f32 (f64 for an f64 kernel): log of the sum of exp of the masked
                    scores */

  const DLTensor* bias; /* [B|1, Hq|1, Lq|1, Lk|1], storage type; added to the scaled score */
  const DLTensor*
      mask; /* [B|1, Hq|1, Lq|1, Lk|1], uint8; polarity as declared, 1 = keep by default */
  const DLTensor* blocks; /* [B|1, Hq|1, ceil(Lq/block_q), ceil(Lk/block_k)], uint8; 1 = keep */
  const DLTensor* keep;   /* dropout keep mask [B, Hq, Lq, Lk], uint8 */
  const DLTensor* alibi_slopes; /* [Hq] or [B, Hq], f32 (f64 for f64) */
  const DLTensor* sink;         /* [Hq], f32 (f64 for f64): one extra logit per head */

  const DLTensor* seqlens_q;  /* [B] int32: end row of each sequence's queries, left pad included */
  const DLTensor* seqlens_k;  /* [B] */
  const DLTensor* left_pad_q; /* [B] int32: rows before the first real one */
  const DLTensor* left_pad_k; /* [B] */
  const DLTensor* cu_seqlens_q; /* [S+1] int32, ascending from 0: packed sequences; B is 1 */
  const DLTensor* cu_seqlens_k; /* [S+1] */
  const DLTensor*
      q_offset; /* [B], or [S] when packed, int32: position of query row 0; align = q_offset only */
  const DLTensor* prefix_len; /* [B], or [S] when packed, int32; base = prefix only */

  /* rope != NONE: cos and sin of position rope_position + r in row r, both [R, rope_dim/2], f32
   * (f64 for f64), covering every position of the call. A kernel may use them or compute its own
   * from rope_base, rope_scale and rope_ntk. */
  const DLTensor* rope_cos;
  const DLTensor* rope_sin;

  double scale; /* multiplies q.k; always given */
  double
      softcap; /* 0: none; else score := softcap * tanh(score / softcap), before bias and masks */
  double dropout_p; /* 0: none; kept weights are multiplied by 1/(1 - dropout_p) */
  double rope_base;
  double rope_scale; /* positions are divided by it; 1: none */
  double rope_ntk;   /* base' = base * ntk^(R/(R-2)); 1: none */

  int64_t window_left; /* inclusive (or as declared), -1 = unlimited; both -1: no window */
  int64_t window_right;
  int64_t global_tokens;
  int64_t block_q, block_k; /* rows per block of `blocks` */
  int64_t rope_dim;
  int64_t rope_position; /* position of row 0 of rope_cos and rope_sin */

  int32_t base;
  int32_t align;
  int32_t alibi;
  int32_t alibi_inside_softcap; /* 1: the ALiBi term is added before the softcap */
  int32_t rope;
  int32_t reserved_end; /* 0 */

  /* backward: the gradients of dO.o + dLSE.lse. o and lse are inputs here, as the kernel's own
   * forward wrote them (lse may be NULL where the kernel is not declared to give one). A gradient
   * that is NULL is not wanted. Each has the shape of its input: what broadcasts there is summed,
   * d_bias, d_alibi_slopes and d_sink over the batch too, d_k and d_v over the query heads that
   * share a head. With RoPE d_q and d_k are gradients of q and k before the rotation. Every element
   * is written; rows that nothing sees get 0. */
  const DLTensor* d_o;   /* [B, Hq, Lq, Dv], storage type */
  const DLTensor* d_lse; /* [B, Hq, Lq], type of lse, natural logarithm; NULL: 0 */
  DLTensor* d_q;         /* storage type, like d_k, d_v and d_bias */
  DLTensor* d_k;
  DLTensor* d_v;
  DLTensor* d_bias;
  DLTensor* d_alibi_slopes; /* f32 (f64 for f64), like d_sink */
  DLTensor* d_sink;

  /* decode: q, k and v hold new rows alone, [B, Hq, Lq, D], [B, Hkv, Lq, D], [B, Hkv, Lq, Dv]; of
   * sequence b the first n = seqlens_q[b] (NULL: Lq). Its earlier keys and values, at positions
   * 0 .. cache_len[b] - 1, lie in the caches. The call writes the new ones behind them, at
   * positions cache_len[b] .. cache_len[b] + n - 1, changes no other byte of a cache, and attends
   * from query row i, which stands at position cache_len[b] + i, to all of them as a forward call
   * does. The axis Lk of bias, mask and blocks counts positions and covers every sequence; their
   * axis Lq counts rows of the call. seqlens_k, left pads, cu_seqlens, q_offset and keep are NULL,
   * align is BOTTOM_RIGHT. New rows that do not fit are refused (ATTEST_UNSUPPORTED or
   * ATTEST_INVALID), all of them, and no cache changes; o and lse may hold anything then. They do
   * not fit where a position is >= C, or of a block table >= T * page_size; in a ring where
   * cache_len[b] + n > C, unless window_left >= 0 and C >= window_left + n. Rows that hold no
   * position, unused pages, and entries of the block table for them are junk. */
  DLTensor* k_cache;           /* [B, Hkv, C, D], paged [pages, Hkv, page_size, D]; storage type */
  DLTensor* v_cache;           /* the same with Dv */
  const DLTensor* cache_len;   /* [B] int32 */
  const DLTensor* block_table; /* [B, T] int32, pages that sequences may share; paged only */
  int64_t num_splits;          /* parts to split the keys of a row into; 0: the kernel chooses */
  int32_t cache;
  int32_t cache_rotated; /* 1: keys lie in the cache as RoPE turned them, 0: as given */
} attest_attention;

/* For components other than attention: named tensors and scalars.
 *
 * "rope", the rotary embedding by itself, turns each row of x to its own position:
 *   inputs   x [B, H, L, D], positions [B, L] int32, cos and sin [N, rope_dim/2] as
 *            attest_attention.rope_cos and rope_sin: row r is position rope_position + r
 *   output   y [B, H, L, D], type of x; the channels from rope_dim on are those of x, bit for bit
 *   scalars  pairing (ATTEST_ROPE_...), rope_dim, rope_position, inverse (1: turn by -theta, as a
 *            backward pass does); base, scale, ntk as attest_attention.rope_base and so on */
typedef struct attest_named_tensor {
  const char* name;
  const DLTensor* tensor;
} attest_named_tensor;
typedef struct attest_named_scalar {
  const char* name;
  int32_t is_float;
  int32_t reserved;
  int64_t i;
  double f;
} attest_named_scalar;

struct attest_plugin;
typedef struct attest_plugin {
  uint32_t struct_size;
  uint32_t abi_version; /* ATTEST_ABI_VERSION */
  const char* name;     /* letters, digits, '_', '-', '.' */
  const char* version;
  const char* declaration; /* e.g. "dtype=f32,bf16 head_dim=1..256 base=full,causal gqa lse";
                              docs/declaration.md */
  int32_t device_type;     /* a DLDeviceType */
  int32_t alignment;       /* bytes every tensor's data is aligned to; 0 = size of its element */

  /* Optional, NULL = nothing to do. open: once per process. plan: once per problem; shapes, strides
   * and scalars are final, data pointers are not. A plan pays for graph building and tuning outside
   * any timed region. */
  attest_status (*open)(int32_t device_id, attest_context* context, void** state);
  void (*close)(void* state);
  attest_status (*plan)(void* state, const char* operation, const attest_attention* problem,
                        attest_context* context, void** plan, uint64_t* workspace_bytes);
  void (*drop)(void* state, void* plan);

  /* Operations, NULL = not offered. `plan` is NULL where plan() is. Each may be called many times
   * per plan. */
  attest_status (*forward)(void* state, void* plan, const attest_attention* problem,
                           attest_context* context);
  attest_status (*backward)(void* state, void* plan, const attest_attention* problem,
                            attest_context* context);
  attest_status (*decode)(void* state, void* plan, const attest_attention* problem,
                          attest_context* context);
  attest_status (*component)(void* state, const char* operation, const attest_named_tensor* inputs,
                             uint64_t num_inputs, const attest_named_tensor* outputs,
                             uint64_t num_outputs, const attest_named_scalar* scalars,
                             uint64_t num_scalars, attest_context* context);

  const struct attest_plugin*
      next; /* another kernel of the same library (`./libmine.so#name`), or NULL */
} attest_plugin;

#if defined(_WIN32)
#define ATTEST_EXPORT __declspec(dllexport)
#else
#define ATTEST_EXPORT __attribute__((visibility("default")))
#endif

/* The one symbol. Returns a table with static lifetime, or NULL where host_abi_version cannot be
 * served. Touches no device. */
ATTEST_EXPORT const attest_plugin* attest_plugin_entry(uint32_t host_abi_version);
typedef const attest_plugin* (*attest_plugin_entry_function)(uint32_t host_abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ATTEST_PLUGIN_H_ */
