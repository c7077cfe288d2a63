// SPDX-License-Identifier: Apache-2.0
#include "properties/memory_growth.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(memory_linear,
                   {
                       .id = "MEM-LINEAR",
                       .sentence = "beyond its tensors a call needs memory that grows with the "
                                   "lengths, not with their product",
                       .skip = skip_without_linear_memory,
                       .draw = draw_long_head,
                       .adapt = adapt_to_long_head,
                       .check = check_growth,
                       .share = 2,
                   });

}  // namespace
}  // namespace attest
