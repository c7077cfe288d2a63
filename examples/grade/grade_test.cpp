// SPDX-License-Identifier: Apache-2.0
// An ordinary test that makes a call of its own and lets Attest judge what came out.
#include <attest/grade.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

// The kernel under test: causal attention for one head, two queries and two keys of dim 1, written
// out by hand. The first query sees key 0 alone, the second both, with equal scores.
static void my_causal_attention(const std::vector<float>& v, std::vector<float>& o) {
  o[0] = v[0];
  o[1] = 0.5f * (v[0] + v[1]);
}

int main() {
  const std::vector<float> q = {0, 0}, k = {0, 0}, v = {1, 3};
  std::vector<float> o(2);
  my_causal_attention(v, o);

  attest::TensorRef tq(q.data(), {1, 1, 2, 1}), tk(k.data(), {1, 1, 2, 1});
  attest::TensorRef tv(v.data(), {1, 1, 2, 1}), to(o.data(), {1, 1, 2, 1});
  attest_attention call = attest::attention_call(tq, tk, tv, to);
  call.base = ATTEST_BASE_CAUSAL;

  const attest::Grade right = attest::grade(call, "f32");
  std::printf("right: %s\n", right.message.c_str());
  o[1] += 1e-3f;
  const attest::Grade wrong = attest::grade(call, "f32");
  std::printf("wrong: %s\n", wrong.message.c_str());
  return right.passed() && !wrong.passed() ? EXIT_SUCCESS : EXIT_FAILURE;
}
