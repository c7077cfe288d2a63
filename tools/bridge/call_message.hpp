// SPDX-License-Identifier: Apache-2.0
// From a call of the plug-in contract to a request, and from an answer to the call's outputs.
#pragma once

#include <string>
#include <vector>

#include "attest/plugin.h"
#include "reports/message.hpp"

namespace attest {

/// A tensor of the call under its name.
struct NamedTensor {
  const char* name;
  const DLTensor* tensor;  ///< nullptr: absent
};

/// Copies the tensors; asks for the outputs, whose names may be among the tensors too (caches).
void put_tensors(const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
                 WorkerRequest& request);

/// A call of attention: "forward", "backward" or "decode".
WorkerRequest attention_request(const std::string& operation, const attest_attention& problem,
                                int num_threads);
std::vector<NamedTensor> attention_outputs(const std::string& operation,
                                           const attest_attention& problem);

/// Of an answer that read_answer() took.
void take_outputs(const WorkerAnswer& answer, const std::vector<NamedTensor>& outputs);

}  // namespace attest
