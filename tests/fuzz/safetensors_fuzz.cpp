// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or tensors whose values are as many as their shapes say.
#include <cstddef>
#include <cstdint>

#include "reports/safetensors.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const auto file = read_safetensors({reinterpret_cast<const char*>(data), size});
  if (!file) {
    require_plain_refusal(file);
    return 0;
  }
  for (const auto& [name, array] : file->tensors) {
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    require(static_cast<std::size_t>(count) == array.values.size());
  }
  return 0;
}
