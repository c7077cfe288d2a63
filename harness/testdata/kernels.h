/* SPDX-License-Identifier: Apache-2.0
 * What the test plug-ins share: plain attention in double, any strides, no masks. */
#ifndef ATTEST_TESTDATA_KERNELS_H_
#define ATTEST_TESTDATA_KERNELS_H_

#include "attest/plugin.h"

static inline int64_t place_of(const DLTensor* t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return a * t->strides[0] + b * t->strides[1] + c * t->strides[2] +
         (t->ndim > 3 ? d * t->strides[3] : 0);
}

static inline float* f32(const DLTensor* t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (float*)t->data + place_of(t, a, b, c, d);
}

/* Copies: o = the mean of v over the keys, lse = the number of keys. Enough to see every element.
 */
static inline attest_status average(const attest_attention* p) {
  const DLTensor *q = p->q, *v = p->v;
  const int64_t group = q->shape[1] / v->shape[1];
  for (int64_t b = 0; b < q->shape[0]; ++b)
    for (int64_t h = 0; h < q->shape[1]; ++h)
      for (int64_t i = 0; i < q->shape[2]; ++i) {
        for (int64_t c = 0; c < v->shape[3]; ++c) {
          float sum = 0;
          for (int64_t j = 0; j < v->shape[2]; ++j) sum += *f32(v, b, h / group, j, c);
          *f32(p->o, b, h, i, c) = sum / (float)(v->shape[2] ? v->shape[2] : 1);
        }
        if (p->lse) *f32(p->lse, b, h, i, 0) = (float)v->shape[2];
      }
  return ATTEST_OK;
}

#endif
