// SPDX-License-Identifier: Apache-2.0
// Reads safetensors files (github.com/huggingface/safetensors): 8 bytes of header length, little
// endian; a JSON object of that length that names each tensor's dtype, shape and place; then the
// data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attest/result.hpp"

namespace attest {

struct NamedArray {
  std::string dtype;  ///< as the file calls it: "F32"
  std::vector<std::int64_t> shape;
  std::vector<double> values;  ///< row-major
};

struct Safetensors {
  std::map<std::string, NamedArray> tensors;
  std::map<std::string, std::string> metadata;
};

/// Strict, as the format says: no gaps and no overlap, shapes that fit their bytes, nothing beyond.
/// F64, F32, F16, BF16, and whole numbers that a double holds: I64, I32, U8, BOOL. The error is one line that names the tensor. Any bytes are safe to pass.
Result<Safetensors> read_safetensors(std::string_view bytes);
/// The same from a file of up to 1 GiB; the error starts with the path.
Result<Safetensors> read_safetensors_file(const std::string& path);

}  // namespace attest
