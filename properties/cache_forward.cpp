// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.forward) return "not declared: forward";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.cache_rotated = false;
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode || problem.cache_rotated) return std::nullopt;
  if (not_declared(declaration, forward_of(problem))) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement whole = restate(problem, context.inputs(problem));
  whole.problem = forward_of(std::move(whole.problem));
  return check_same(context, problem, std::move(whole), {}, true,
                    "a forward call on the whole sequences");
}

ATTEST_REQUIREMENT(cache_forward,
                   {
                       .id = "CACHE-FORWARD",
                       .sentence = "decoding from a cache gives what a forward call on the whole "
                                   "sequences gives",
                       .operation = Operation::decode,
                       .skip = skip,
                       .adapt = adapt,
                       .check = check,
                       .share = 100,
                   });

}  // namespace
}  // namespace attest
