// SPDX-License-Identifier: Apache-2.0
#include "properties/judge_outputs.hpp"

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "properties/support.hpp"

namespace attest {

CaseResult judge_outputs(CaseContext& context, const AttentionProblem& problem,
                         const Expected& expected, const Observation& seen) {
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const bool generic = is_generic(problem);
  CaseResult result = judge_values(problem, expected, Output::o, seen.o, generic);
  if (is_failure(result.verdict) || seen.lse.empty()) return result;
  CaseResult lse = judge_values(problem, expected, Output::lse, seen.lse, generic);
  if (is_failure(lse.verdict) || result.verdict == Verdict::not_judged) return lse;
  result.elements_compared += lse.elements_compared;
  return result;
}

std::optional<CaseResult> differing_bits(const AttentionProblem& problem, const Observation& before,
                                         const Observation& after, Reason reason,
                                         const std::string& what) {
  std::optional<CaseResult> first;
  for (const Output output : {Output::o, Output::lse}) {
    const bool is_o = output == Output::o;
    const auto& left = is_o ? before.o_bits : before.lse_bits;
    const auto& right = is_o ? after.o_bits : after.lse_bits;
    for (std::size_t flat = 0; flat < left.size() && flat < right.size(); ++flat) {
      if (left[flat] == right[flat]) continue;
      if (first) {
        ++first->elements_failed;
        continue;
      }
      const double was = is_o ? before.o[flat] : before.lse[flat];
      const double is = is_o ? after.o[flat] : after.lse[flat];
      first = element_failure(problem, output, flat, was, is, reason, "");
      std::string element = first->worst->tensor;
      char separator = '[';
      for (const std::int64_t i : first->worst->index) {
        element += separator + std::to_string(i);
        separator = ',';
      }
      first->detail =
          what + " changes " + element + "] from " + print_number(was) + " to " + print_number(is);
    }
  }
  if (first)
    first->elements_compared = static_cast<std::int64_t>(before.o.size() + before.lse.size());
  return first;
}

CaseResult broken_by(CaseResult failure, const std::string& what) {
  if (failure.verdict == Verdict::fail && failure.reason == Reason::wrong_value)
    failure.reason = Reason::law_broken;
  failure.detail = what + ": " + failure.detail;
  failure.ratio_output.clear();
  return failure;
}

CaseResult wrong_anyway() {
  CaseResult result;
  result.verdict = Verdict::not_judged;
  result.detail = "the call is wrong without the change too";
  return result;
}

}  // namespace attest
