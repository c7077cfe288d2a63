// SPDX-License-Identifier: Apache-2.0
// What the machine room's tests share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "attest/inputs.hpp"
#include "harness/observe.hpp"

namespace attest::machine_test {

inline std::string module_path(const std::string& name) {
  return std::string(ATTEST_BINARY_DIR) + "/lib/attest-test/" + name + ".so";
}

inline std::unique_ptr<Subject> host_of(const std::string& module, const std::string& kernel = "") {
  OpenError error;
  auto subject = open_in_host({module_path(module), kernel, false}, error);
  EXPECT_NE(subject, nullptr) << error.message;
  return subject;
}

inline AttentionProblem small_problem() {
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads = 2;
  problem.num_kv_heads = 2;
  problem.q_len = problem.kv_len = 3;
  problem.head_dim = problem.v_head_dim = 4;
  return problem;
}

/// 1, 2, 3, ...: exact in every type up to 256, all different, never 0.
template <class T>
Dense<T> counting(std::array<std::int64_t, 4> shape, T first = 1) {
  Dense<T> dense(shape);
  for (std::size_t i = 0; i < dense.values.size(); ++i)
    dense.values[i] = static_cast<T>(first + static_cast<T>(i));
  return dense;
}

/// q counts from 1, k from 60, v from 120, wrapping below 200; k and v repeat over the batch in the
/// layout where memory does. Other tensors are the test's own.
inline AttentionInputs small_inputs(const AttentionProblem& p) {
  const auto make = [&p](std::int64_t heads, std::int64_t rows, std::int64_t channels, double first,
                         bool repeats) {
    Dense<double> dense({p.batch, heads, rows, channels});
    const std::size_t size = dense.values.size();
    const std::size_t period = repeats && p.batch ? size / static_cast<std::size_t>(p.batch) : size;
    for (std::size_t i = 0; i < size; ++i)
      dense.values[i] = first + static_cast<double>(i % period % 60);
    return dense;
  };
  const bool repeats = p.layout == Layout::broadcast;
  AttentionInputs inputs;
  inputs.q = make(p.num_heads, p.q_len, p.head_dim, 1, false);
  inputs.k = make(p.num_kv_heads, p.kv_len, p.head_dim, 60, repeats);
  inputs.v = make(p.num_kv_heads, p.kv_len, p.v_head_dim, 120, repeats);
  return inputs;
}

}  // namespace attest::machine_test
