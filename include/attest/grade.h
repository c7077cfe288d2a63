/* SPDX-License-Identifier: Apache-2.0
 * attest/grade.h - judge the outputs of a call that an ordinary test has just made, in C.
 *
 *   attest_attention call = {sizeof call};
 *   call.q = &q; call.k = &k; call.v = &v; call.o = &o; call.scale = 0.125;
 *   call.window_left = call.window_right = -1;
 *   my_kernel(&call);
 *   char why[512];
 *   assert(attest_grade(&call, "mma_f32acc", why, sizeof why) == ATTEST_GRADE_PASS);
 *
 * The expected values come from the oracle, the tolerance from the precision named
 * (docs/tolerance.md). Link with attest::grade. */
#ifndef ATTEST_GRADE_H_
#define ATTEST_GRADE_H_

#include "attest/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_GRADE_PASS 0
#define ATTEST_GRADE_FAIL 1
#define ATTEST_GRADE_NOT_JUDGED 2 /* outside the domain: nothing can be said */
#define ATTEST_GRADE_INVALID 3    /* the call contradicts itself, or the precision is unknown */

/* Judges call->o, and call->lse where it is not NULL, against the exact answer to the other fields.
 * Tensors are read, never written. `message` (may be NULL) receives one line that says what is
 * wrong and where, or the worst err/tolerance of a pass. */
ATTEST_EXPORT int32_t attest_grade(const attest_attention* call, const char* precision,
                                   char* message, uint64_t message_capacity);

#ifdef __cplusplus
}
#endif
#endif /* ATTEST_GRADE_H_ */
