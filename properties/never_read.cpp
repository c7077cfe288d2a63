// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  const Observation& first = context.first(problem);
  const Observation& second = context.second(problem);
  if (first.o_bits == second.o_bits && first.lse_bits == second.lse_bits) {
    CaseResult same;
    same.elements_compared = static_cast<std::int64_t>(first.o.size() + first.lse.size());
    return same;
  }
  // The pair also differs in placement, and with it in alignment, which may change the order of a
  // sum. A third call differs from the first in the poison alone.
  const Observation third = context.call(problem, context.inputs(problem),
                                         {.flush = Flush::high, .poison = Poison::finite});
  if (auto result = judge_call(third, context.declaration(), problem)) return *result;
  const std::vector<std::uint8_t> all(num_rows(problem), 1);
  CaseResult result = compare_rows(context, problem, first, third, all, Reason::law_broken,
                                   "the content of bytes that must not be read");
  if (result.worst && (std::isnan(result.worst->expected) || std::isnan(result.worst->actual)))
    result.reason = Reason::nan_leak;
  return result;
}

ATTEST_REQUIREMENT(
    never_read,
    {
        .id = "MEM-NEVER-READ",
        .sentence = "bytes that are no part of the problem (rows outside the lengths, stride gaps, "
                    "slack) change no bit of the result, whatever they hold",
        .check = check,
        .of_decode = "CACHE-NEVER-READ",
        .of_rope = "ROPE-NEVER-READ",
    });

}  // namespace
}  // namespace attest
