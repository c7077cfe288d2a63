// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/memory_growth.hpp"

namespace attest {
namespace {

AttentionProblem draw_backward(const Declaration& declaration, std::uint64_t seed,
                               std::uint64_t index) {
  return to_backward(draw_long_head(declaration, seed, index), declaration);
}

ATTEST_REQUIREMENT(grad_memory,
                   {
                       .id = "GRAD-MEMORY",
                       .sentence = "beyond its tensors a backward call needs memory that grows "
                                   "with the lengths, not with their product",
                       .operation = Operation::backward,
                       .skip = skip_without_linear_memory,
                       .draw = draw_backward,
                       .adapt = adapt_to_long_head,
                       .check = check_growth,
                       .share = 2,
                   });

}  // namespace
}  // namespace attest
