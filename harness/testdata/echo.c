/* SPDX-License-Identifier: Apache-2.0
 * Kernels that write what they were given into o, so that a test sees it through the contract. */
#include <string.h>

#include "kernels.h"

#define FORWARD(kernel)                                                           \
  static attest_status kernel(void* state, void* plan, const attest_attention* p, \
                              attest_context* context)
#define UNUSED (void)state, (void)plan, (void)context

/* o[b, h, i, c] = the bits of t[b, h / group, i, c], axes of extent 1 broadcast. lse untouched. */
static attest_status copy(const attest_attention* p, const DLTensor* t) {
  const DLTensor* o = p->o;
  const size_t size = o->dtype.bits / 8;
  if (t == NULL || t->dtype.bits != o->dtype.bits || t->ndim != 4) return ATTEST_INVALID;
  const int64_t group = t->shape[1] == 1 ? 1 : o->shape[1] / t->shape[1];
  for (int64_t b = 0; b < o->shape[0]; ++b)
    for (int64_t h = 0; h < o->shape[1]; ++h)
      for (int64_t i = 0; i < o->shape[2]; ++i)
        for (int64_t c = 0; c < o->shape[3]; ++c) {
          const int64_t from =
              place_of(t, t->shape[0] == 1 ? 0 : b, t->shape[1] == 1 ? 0 : h / group,
                       t->shape[2] == 1 ? 0 : i, t->shape[3] == 1 ? 0 : c);
          memcpy((char*)o->data + (size_t)place_of(o, b, h, i, c) * size,
                 (const char*)t->data + (size_t)from * size, size);
        }
  return ATTEST_OK;
}

FORWARD(copy_q) {
  UNUSED;
  return copy(p, p->q);
}
FORWARD(copy_k) {
  UNUSED;
  return copy(p, p->k);
}
FORWARD(copy_v) {
  UNUSED;
  return copy(p, p->v);
}
FORWARD(copy_bias) {
  UNUSED;
  return copy(p, p->bias);
}

/* A tensor of another type, widened; o must have its shape. f32 alone. */
static attest_status widen(const attest_attention* p, const DLTensor* t) {
  const DLTensor* o = p->o;
  if (t == NULL) return ATTEST_INVALID;
  for (int64_t b = 0; b < o->shape[0]; ++b)
    for (int64_t h = 0; h < o->shape[1]; ++h)
      for (int64_t i = 0; i < o->shape[2]; ++i)
        for (int64_t c = 0; c < o->shape[3]; ++c) {
          int64_t at = 0;
          const int64_t index[4] = {b, h, i, c};
          /* Ranks below 4 are the last axes of o. */
          for (int axis = 0; axis < t->ndim; ++axis)
            if (t->shape[axis] != 1) at += index[4 - t->ndim + axis] * t->strides[axis];
          *f32(o, b, h, i, c) = t->dtype.code == kDLInt    ? (float)((const int32_t*)t->data)[at]
                                : t->dtype.code == kDLUInt ? ((const uint8_t*)t->data)[at]
                                                           : ((const float*)t->data)[at];
        }
  return ATTEST_OK;
}

FORWARD(copy_mask) {
  UNUSED;
  return widen(p, p->mask);
}
FORWARD(copy_keep) {
  UNUSED;
  return widen(p, p->keep);
}
FORWARD(copy_slopes) {
  UNUSED;
  return widen(p, p->alibi_slopes);
}
FORWARD(copy_seqlens_k) {
  UNUSED;
  return widen(p, p->seqlens_k);
}
FORWARD(copy_cos) {
  UNUSED;
  return widen(p, p->rope_cos);
}

/* o = [1, 1, 1, n]: the scalars in the order of the struct. */
FORWARD(scalars) {
  (void)state, (void)plan;
  const double told[] = {p->scale,
                         p->softcap,
                         p->dropout_p,
                         p->rope_base,
                         p->rope_scale,
                         p->rope_ntk,
                         (double)p->window_left,
                         (double)p->window_right,
                         (double)p->global_tokens,
                         (double)p->block_q,
                         (double)p->block_k,
                         (double)p->rope_dim,
                         (double)p->rope_position,
                         p->base,
                         p->align,
                         p->alibi,
                         p->alibi_inside_softcap,
                         p->rope,
                         context->num_threads};
  for (int64_t c = 0; c < p->o->shape[3]; ++c) *f32(p->o, 0, 0, 0, c) = (float)told[c];
  return ATTEST_OK;
}

/* Which optional tensors there are, as bits of o[0]. */
FORWARD(present) {
  UNUSED;
  const DLTensor* optional[] = {
      p->lse,          p->bias,      p->mask,       p->blocks,     p->keep,       p->alibi_slopes,
      p->sink,         p->seqlens_q, p->seqlens_k,  p->left_pad_q, p->left_pad_k, p->cu_seqlens_q,
      p->cu_seqlens_k, p->q_offset,  p->prefix_len, p->rope_cos,   p->rope_sin};
  float bits = 0;
  for (int i = 0; i < 17; ++i) bits += optional[i] ? (float)(1 << i) : 0;
  for (int64_t c = 0; c < p->o->shape[3]; ++c) *f32(p->o, 0, 0, 0, c) = bits;
  return ATTEST_OK;
}

/* lse[b, h, i] = 1, everything else untouched. */
FORWARD(ones_lse) {
  UNUSED;
  for (int64_t b = 0; b < p->lse->shape[0]; ++b)
    for (int64_t h = 0; h < p->lse->shape[1]; ++h)
      for (int64_t i = 0; i < p->lse->shape[2]; ++i)
        *f32(p->lse, b, h, i, 0) = (float)(100 * b + 10 * h + i);
  return ATTEST_OK;
}

#define DECLARE(name, forward, declaration, alignment, next)                                    \
  {                                                                                             \
    sizeof(attest_plugin), ATTEST_ABI_VERSION, name, "1", declaration, kDLCPU, alignment, NULL, \
        NULL, NULL, NULL, forward, NULL, NULL, NULL, next                                       \
  }
#define ALL "dtype=f64,f32,f16,bf16 features=all v_head_dim=1..512 layout=any "
static const attest_plugin kernels[] = {
    DECLARE("copy_q", copy_q, ALL, 0, &kernels[1]),
    DECLARE("copy_k", copy_k, ALL, 0, &kernels[2]),
    DECLARE("copy_v", copy_v, ALL, 0, &kernels[3]),
    DECLARE("copy_bias", copy_bias, ALL, 0, &kernels[4]),
    DECLARE("copy_mask", copy_mask, ALL, 0, &kernels[5]),
    DECLARE("copy_dropped", copy_mask, ALL "mask_polarity=drop", 0, &kernels[6]),
    DECLARE("copy_keep", copy_keep, ALL, 0, &kernels[7]),
    DECLARE("copy_slopes", copy_slopes, ALL, 0, &kernels[8]),
    DECLARE("copy_seqlens_k", copy_seqlens_k, ALL, 0, &kernels[9]),
    DECLARE("copy_real_counts", copy_seqlens_k, ALL "lengths=real_count", 0, &kernels[10]),
    DECLARE("copy_cos", copy_cos, ALL, 0, &kernels[11]),
    DECLARE("scalars", scalars, ALL, 0, &kernels[12]),
    DECLARE("exclusive", scalars, ALL "window_bound=exclusive", 0, &kernels[13]),
    DECLARE("top_left", scalars,
            "dtype=f32 base=full,causal align=top_left v_head_dim=1..512 alibi=absolute window", 0,
            &kernels[14]),
    DECLARE("present", present, ALL, 0, &kernels[15]),
    DECLARE("ones_lse", ones_lse, ALL, 0, &kernels[16]),
    DECLARE("base_two", ones_lse, ALL "lse_base=2", 0, &kernels[17]),
    DECLARE("aligned", copy_v, ALL, 64, NULL),
};

ATTEST_EXPORT const attest_plugin* attest_plugin_entry(uint32_t version) {
  (void)version;
  return kernels;
}
