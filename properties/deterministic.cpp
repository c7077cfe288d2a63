// SPDX-License-Identifier: Apache-2.0
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.deterministic) return "not promised: deterministic";
  return std::nullopt;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& first = context.first(problem);
  if (auto result = judge_call(first, context.declaration(), problem)) return *result;
  const Observation again = context.call(problem, context.inputs(problem));
  if (auto result = judge_call(again, context.declaration(), problem)) return *result;
  const std::vector<std::uint8_t> all(num_rows(problem), 1);
  return compare_rows(context, problem, first, again, all, Reason::not_deterministic,
                      "running the same call again");
}

ATTEST_REQUIREMENT(deterministic, {
                                      .id = "DET-RUN",
                                      .sentence = "the same call gives the same bits again",
                                      .skip = skip,
                                      .check = check,
                                      .of_decode = "CACHE-RUN",
                                      .of_rope = "ROPE-RUN",
                                  });

}  // namespace
}  // namespace attest
