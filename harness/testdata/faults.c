/* SPDX-License-Identifier: Apache-2.0
 * A library of planted faults whose outcomes are known: o is the mean of v, lse the number of keys.
 */
#include "attest/faults.h"

#include "kernels.h"

#define FORWARD(kernel)                                                           \
  static attest_status kernel(void* state, void* plan, const attest_attention* p, \
                              attest_context* context)
#define UNUSED (void)state, (void)plan, (void)context

static attest_status doubled(const attest_attention* p) {
  average(p);
  for (int64_t b = 0; b < p->o->shape[0]; ++b)
    for (int64_t h = 0; h < p->o->shape[1]; ++h)
      for (int64_t i = 0; i < p->o->shape[2]; ++i)
        for (int64_t c = 0; c < p->o->shape[3]; ++c) *f32(p->o, b, h, i, c) *= 2;
  return ATTEST_OK;
}

FORWARD(honest) {
  UNUSED;
  return average(p);
}
/* Wrong wherever there are three keys or more. */
FORWARD(many_keys) {
  UNUSED;
  return p->k->shape[2] > 2 ? doubled(p) : average(p);
}
/* Wrong where heads share keys. */
FORWARD(shared_heads) {
  UNUSED;
  return p->q->shape[1] != p->k->shape[1] ? doubled(p) : average(p);
}
/* Wrong in lse alone. */
FORWARD(no_lse) {
  UNUSED;
  average(p);
  for (int64_t b = 0; p->lse && b < p->lse->shape[0]; ++b)
    for (int64_t h = 0; h < p->lse->shape[1]; ++h)
      for (int64_t i = 0; i < p->lse->shape[2]; ++i) *f32(p->lse, b, h, i, 0) = -1;
  return ATTEST_OK;
}
/* Right in every process that makes few calls. */
FORWARD(tired) {
  UNUSED;
  static int calls = 0;
  return ++calls > 40 ? doubled(p) : average(p);
}

#define DECLARATION "dtype=f32 v_head_dim=any gqa scale scale_nonpositive lse layout=any"
#define KERNEL(id, forward, next)                                                                 \
  {                                                                                               \
    sizeof(attest_plugin), ATTEST_ABI_VERSION, id, "1", DECLARATION, kDLCPU, 0, NULL, NULL, NULL, \
        NULL, forward, NULL, NULL, NULL, next                                                     \
  }
/* What the table has wrong. */
enum { PLAIN, TWICE, BAD_ID, BAD_BASE, BAD_DTYPE, KERNEL_RING };
#define LAST (FAULTS_CASE == KERNEL_RING ? &kernels[0] : NULL)
/* The first one stands for all types of the honest entry, which has one. */
static const attest_plugin kernels[] = {KERNEL("mean", honest, &kernels[1]),
                                        KERNEL("mean.f32", honest, &kernels[2]),
                                        KERNEL("liar.f32", many_keys, &kernels[3]),
                                        KERNEL("many_keys.f32", many_keys, &kernels[4]),
                                        KERNEL("shared_heads.f32", shared_heads, &kernels[5]),
                                        KERNEL("no_lse.f32", no_lse, &kernels[6]),
                                        KERNEL("tired.f32", tired, &kernels[7]),
                                        KERNEL("nothing.f32", honest, &kernels[8]),
                                        KERNEL("like_liar.f32", many_keys, LAST)};

const attest_plugin* attest_plugin_entry(uint32_t version) {
  return version == ATTEST_ABI_VERSION ? kernels : NULL;
}

#define FAULT(honest, id, kind, base, next) \
  { sizeof(attest_fault), honest, id, kind, "what it does", "", DTYPES, base, next }
#define FIRST (FAULTS_CASE == TWICE ? "liar" : FAULTS_CASE == BAD_ID ? "a mean" : "mean")
#define BASE (FAULTS_CASE == BAD_BASE ? "tired" : "mean")
#define DTYPES (FAULTS_CASE == BAD_DTYPE ? "f32,f33" : "f32")

static const attest_fault faults[] = {FAULT(1, FIRST, "honest", "", &faults[1]),
                                      FAULT(1, "liar", "honest", "", &faults[2]),
                                      FAULT(0, "many_keys", "values", BASE, &faults[3]),
                                      FAULT(0, "shared_heads", "heads", "mean", &faults[4]),
                                      FAULT(0, "no_lse", "values", "mean", &faults[5]),
                                      FAULT(0, "tired", "state", "mean", &faults[6]),
                                      FAULT(0, "nothing", "none", "mean", &faults[7]),
                                      FAULT(0, "like_liar", "values", "liar", NULL)};

const attest_fault* attest_fault_catalogue(void) { return faults; }
