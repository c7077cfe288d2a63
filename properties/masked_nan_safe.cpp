// SPDX-License-Identifier: Apache-2.0
#include "properties/perturb.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.masked_nan_safe) return "not promised: masked_nan_safe";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  store_batches_apart(problem, declaration);
  return with_hidden_keys(std::move(problem), declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& base = context.first(problem);
  if (auto result = judge_call(base, context.declaration(), problem)) return *result;
  const Perturbed other =
      perturb_invisible(problem, context.inputs(problem), Replacement::non_finite);
  if (!other.changed) return {.verdict = Verdict::not_judged, .detail = "every key is visible"};
  const Observation changed = context.call(problem, other.inputs);
  if (auto result = judge_call(changed, context.declaration(), problem)) return *result;
  return compare_rows(context, problem, base, changed, other.watched, Reason::nan_leak,
                      "NaN or Inf where nothing is visible");
}

ATTEST_REQUIREMENT(
    masked_nan_safe,
    {
        .id = "MASK-NANSAFE",
        .sentence =
            "NaN and Inf in an invisible key, value or bias entry change no bit of a row that "
            "does not see it",
        .skip = skip,
        .adapt = adapt,
        .check = check,
        .share = 250,
    });

}  // namespace
}  // namespace attest
