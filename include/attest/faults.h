/* SPDX-License-Identifier: Apache-2.0
 * attest/faults.h - how a library of planted faults says what it holds. `attest selftest` reads
 * this table and runs the suite on every entry.
 *
 * Such a library is an ordinary plug-in (attest/plugin.h). An entry `causal_top_left` with dtypes
 * "f32,bf16" stands for two kernels, `causal_top_left.f32` and `causal_top_left.bf16`, each of
 * which declares that one type alone: whether a fault can be observed depends on the type. An
 * honest entry may offer a kernel of the name of its id as well, which serves all its types: it is
 * tested in one go where no type is asked for.
 */
#ifndef ATTEST_FAULTS_H_
#define ATTEST_FAULTS_H_

#include "attest/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attest_fault {
  uint32_t struct_size;
  int32_t honest;       /* 1: a right kernel in another style; it must not be accused */
  const char* id;       /* "causal_top_left": letters, digits, '_' */
  const char* kind;     /* the group it stands in: "mask", "online softmax", ... */
  const char* sentence; /* the mistake in one line */
  const char*
      reference;      /* where it really shipped, "NVIDIA/cutlass#2336"; "" where nowhere known */
  const char* dtypes; /* those where it can be observed, "f64,f32,f16,bf16" */
  const char* base;   /* id of the honest entry that it differs from by the mistake alone */
  const struct attest_fault* next;
} attest_fault;

/* The second symbol of the library, beside attest_plugin_entry. Static lifetime. */
ATTEST_EXPORT const attest_fault* attest_fault_catalogue(void);
typedef const attest_fault* (*attest_fault_catalogue_function)(void);

#ifdef __cplusplus
}
#endif
#endif /* ATTEST_FAULTS_H_ */
