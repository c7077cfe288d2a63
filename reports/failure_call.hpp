// SPDX-License-Identifier: Apache-2.0
// One call of a kernel as plain data, for the page and the program of a failure (pages.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attest {

/// Memory as the kernel was given it: from the first to the last element of what lies in it.
struct CallBlock {
  std::string name;                 ///< "q"; "k" where v lies in it too
  std::string type;                 ///< "f64", "f32", "f16", "bf16", "u8", "i32"
  std::vector<std::uint64_t> bits;  ///< of each element
  bool output = false;
  bool written = false;  ///< by the call too, so that it may differ afterwards: a cache
};

/// A number of the block.
double value_of(const CallBlock& block, std::size_t element);

struct CallTensor {
  std::string name;        ///< as in attest_attention, also where it goes to a component
  std::size_t block = 0;   ///< index into FailureCall::blocks
  std::int64_t first = 0;  ///< element of the block
  std::vector<std::int64_t> shape, strides;
};

/// An output with what it should be, in logical row-major order.
struct CallOutput {
  std::string name;
  std::vector<double> expected;
  std::vector<double> tolerance;  ///< negative: this element is not judged
  std::vector<double> actual;     ///< empty where the call did not come back
};

struct FailureCall {
  std::string library, kernel;
  std::int64_t alignment = 1;  ///< bytes
  std::vector<CallBlock> blocks;
  std::vector<CallTensor> tensors;
  std::vector<std::pair<std::string, double>> numbers;         ///< scalars, by their names
  std::vector<std::pair<std::string, std::int64_t>> integers;  ///< the same
  std::vector<CallOutput> outputs;
  bool lse_in_log2 = false;           ///< the kernel gives log2; CallOutput does not
  bool refuse = false;                ///< the kernel must refuse the call
  std::string operation = "forward";  ///< or "backward", "decode": the function that is called
  bool is_component = false;          ///< `operation` is that of attest_plugin.component instead
};

}  // namespace attest
