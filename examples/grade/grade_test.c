/* SPDX-License-Identifier: Apache-2.0
 * The same from C: one query, two keys with equal scores, so that o is the mean of v. */
#include <attest/grade.h>
#include <stdio.h>
#include <string.h>

static DLTensor tensor(float* data, int64_t* shape, int64_t* strides) {
  DLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = kDLCPU;
  t.ndim = 4;
  t.dtype.code = kDLFloat;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  t.strides = strides;
  return t;
}

int main(void) {
  float q[1] = {0}, k[2] = {0, 0}, v[2] = {1, 3}, o[1] = {2};
  int64_t one[4] = {1, 1, 1, 1}, two[4] = {1, 1, 2, 1}, strides[4] = {2, 2, 1, 1};
  DLTensor tq = tensor(q, one, strides), tk = tensor(k, two, strides);
  DLTensor tv = tensor(v, two, strides), to = tensor(o, one, strides);
  attest_attention call;
  char why[512];
  int right, wrong;

  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.q = &tq;
  call.k = &tk;
  call.v = &tv;
  call.o = &to;
  call.scale = 1;
  call.window_left = call.window_right = -1;

  right = attest_grade(&call, "f32", why, sizeof why);
  printf("right: %s\n", why);
  o[0] = 2.001f;
  wrong = attest_grade(&call, "f32", why, sizeof why);
  printf("wrong: %s\n", why);
  return right == ATTEST_GRADE_PASS && wrong == ATTEST_GRADE_FAIL ? 0 : 1;
}
