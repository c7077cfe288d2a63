// SPDX-License-Identifier: Apache-2.0
// Any bytes of a program: either one line of refusal, or an answer with every output in the form
// that was asked for.
#include <cstddef>
#include <cstdint>

#include "reports/message.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  WorkerRequest request;
  request.id = 7;
  request.operation = "forward";
  request.outputs["o"] = {WireType::bf16, {1, 2}};
  request.outputs["lse"] = {WireType::f32, {1}};
  for (const MessageFormat format : {MessageFormat::safetensors, MessageFormat::jsonl}) {
    const auto answer = read_answer({reinterpret_cast<const char*>(data), size}, request, format);
    if (!answer) {
      require_plain_refusal(answer);
      continue;
    }
    require(answer->id == request.id);
    if (answer->status != "ok") continue;
    require(answer->outputs.at("o").size() == 4);
    require(answer->outputs.at("lse").size() == 4);
  }
  return 0;
}
