// SPDX-License-Identifier: Apache-2.0
#include "properties/perturb.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  store_batches_apart(problem, declaration);
  return with_hidden_keys(std::move(problem), declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& base = context.first(problem);
  if (auto result = judge_call(base, context.declaration(), problem)) return *result;
  const Perturbed other = perturb_invisible(problem, context.inputs(problem), Replacement::finite);
  if (!other.changed) return {.verdict = Verdict::not_judged, .detail = "every key is visible"};
  const Observation changed = context.call(problem, other.inputs);
  if (auto result = judge_call(changed, context.declaration(), problem)) return *result;
  return compare_rows(context, problem, base, changed, other.watched, Reason::law_broken,
                      "another finite value where nothing is visible");
}

ATTEST_REQUIREMENT(
    mask_no_leak,
    {
        .id = "MASK-NOLEAK",
        .sentence =
            "another finite value of an invisible key, value, bias or mask entry changes no bit "
            "of a row that does not see it",
        .adapt = adapt,
        .check = check,
        .share = 400,
    });

}  // namespace
}  // namespace attest
