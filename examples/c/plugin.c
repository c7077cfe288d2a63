/* SPDX-License-Identifier: Apache-2.0
 * Attention in C11, f32: full or causal, grouped heads, any strides, lse. Needs attest/plugin.h
 * alone. Built as a shared library: `attest check ./example_c.so`. */
#include <attest/plugin.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static attest_status refuse(attest_context* context, const char* why) {
  if (context->message && strlen(why) < context->message_capacity) strcpy(context->message, why);
  return ATTEST_UNSUPPORTED;
}

static float* element(const DLTensor* t, int64_t b, int64_t h, int64_t i, int64_t c) {
  return (float*)t->data + b * t->strides[0] + h * t->strides[1] + i * t->strides[2] +
         c * t->strides[3];
}

/* Query row (b, h, i), which sees the first `keys` keys. Online softmax: one pass over the keys. */
static void attend(const attest_attention* p, int64_t b, int64_t h, int64_t i, int64_t keys) {
  const int64_t head_dim = p->q->shape[3], v_head_dim = p->v->shape[3];
  const int64_t g = h / (p->q->shape[1] / p->k->shape[1]);
  float max = -INFINITY, sum = 0;
  for (int64_t c = 0; c < v_head_dim; ++c) *element(p->o, b, h, i, c) = 0;
  for (int64_t j = 0; j < keys; ++j) {
    float score = 0;
    for (int64_t c = 0; c < head_dim; ++c)
      score += *element(p->q, b, h, i, c) * *element(p->k, b, g, j, c);
    score *= (float)p->scale;
    const float new_max = fmaxf(max, score);
    const float keep = new_max == max ? 1 : expf(max - new_max); /* exactly 1 where it stays */
    const float weight = expf(score - new_max);
    sum = sum * keep + weight;
    max = new_max;
    for (int64_t c = 0; c < v_head_dim; ++c) {
      float* out = element(p->o, b, h, i, c);
      *out = *out * keep + weight * *element(p->v, b, g, j, c);
    }
  }
  /* A row that sees no key: o = 0 and lse = -infinity. */
  if (keys > 0)
    for (int64_t c = 0; c < v_head_dim; ++c) *element(p->o, b, h, i, c) /= sum;
  if (p->lse) {
    const int64_t* strides = p->lse->strides;
    ((float*)p->lse->data)[b * strides[0] + h * strides[1] + i * strides[2]] =
        keys > 0 ? max + logf(sum) : -INFINITY;
  }
}

static attest_status forward(void* state, void* plan, const attest_attention* problem,
                             attest_context* context) {
  (void)state, (void)plan;
  /* The caller may be older or newer: fields that it does not have read as 0. */
  attest_attention p = {0};
  memcpy(&p, problem, problem->struct_size < sizeof p ? problem->struct_size : sizeof p);

  if (problem->struct_size > sizeof p) return refuse(context, "fields newer than this plug-in");
  if (p.q->dtype.code != kDLFloat || p.q->dtype.bits != 32) return refuse(context, "not f32");
  if (p.base != ATTEST_BASE_FULL && p.base != ATTEST_BASE_CAUSAL) return refuse(context, "base");
  if (p.align != ATTEST_ALIGN_BOTTOM_RIGHT) return refuse(context, "align");
  if (p.window_left != -1 || p.window_right != -1) return refuse(context, "window");
  if (p.mask || p.blocks || p.bias) return refuse(context, "mask, blocks or bias");
  if (p.alibi || p.rope) return refuse(context, "alibi or rope");
  if (p.softcap != 0 || p.sink || p.keep) return refuse(context, "softcap, sink or dropout");
  if (p.seqlens_q || p.seqlens_k || p.left_pad_q || p.left_pad_k || p.cu_seqlens_q)
    return refuse(context, "lengths or packed sequences");

  const int64_t q_len = p.q->shape[2], kv_len = p.k->shape[2];
  for (int64_t b = 0; b < p.q->shape[0]; ++b)
    for (int64_t h = 0; h < p.q->shape[1]; ++h)
      for (int64_t i = 0; i < q_len; ++i) {
        int64_t keys = kv_len;
        if (p.base == ATTEST_BASE_CAUSAL) keys = i + 1 + kv_len - q_len; /* the last sees all */
        attend(&p, b, h, i, keys < 0 ? 0 : keys);
      }
  return ATTEST_OK;
}

static const attest_plugin plugin = {
    .struct_size = sizeof(attest_plugin),
    .abi_version = ATTEST_ABI_VERSION,
    .name = "example_c",
    .version = "1.0",
    .declaration =
        "dtype=f32 v_head_dim=any gqa base=full,causal align=bottom_right "
        "scale scale_nonpositive lse layout=any empty_dims deterministic",
    .device_type = kDLCPU,
    .forward = forward,
};

const attest_plugin* attest_plugin_entry(uint32_t host_abi_version) {
  return host_abi_version == ATTEST_ABI_VERSION ? &plugin : NULL;
}
