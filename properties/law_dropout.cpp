// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x64726f70u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::dropout)) return std::nullopt;
  if (problem.dropout_p == 0) {
    constexpr double kChances[] = {0.1, 0.5, 0.25, 0.9};
    problem.dropout_p = kChances[chosen(problem, kTag, 4)];
  }
  problem = law_sized(std::move(problem), declaration);
  if (problem.dropout_p == 0) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  Restatement plain = restate(problem, context.inputs(problem));
  Restatement all_kept = plain;
  plain.problem.dropout_p = 0;
  plain.inputs.keep = {};
  std::fill(all_kept.inputs.keep.values.begin(), all_kept.inputs.keep.values.end(),
            std::uint8_t{1});
  if (!settle(plain, context.declaration()) || !settle(all_kept, context.declaration()))
    return not_sayable();
  LawCall without, kept;
  if (auto result = further_call(context, whole, plain, true, without)) return *result;
  if (auto result = further_call(context, whole, all_kept, true, kept)) return *result;
  LawJudge judge(problem, "calling without dropout");
  compare_same(whole, without, {.compares_o = false}, judge);
  compare_same(kept, without, {.o_factor = 1 / (1 - problem.dropout_p)}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_dropout,
    {
        .id = "LAW-DROPOUT",
        .sentence =
            "dropout that keeps everything gives o / (1 - p), and lse does not know what is "
            "dropped",
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
