// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "properties/judge_outputs.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration&) {
  if (problem.batch < 2) return std::nullopt;
  return problem;
}

/// The rows of sequence b of what a call on all of them gave.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, std::int64_t batch, std::int64_t b) {
  const std::ptrdiff_t size = std::ssize(all) / batch;
  return {all.begin() + b * size, all.begin() + (b + 1) * size};
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& together = context.first(problem);
  if (auto result = judge_call(together, context.declaration(), problem)) return *result;
  const AttentionInputs& inputs = context.inputs(problem);
  CaseResult result;
  result.elements_compared = static_cast<std::int64_t>(together.o.size() + together.lse.size());
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    Restatement alone_call = restate(problem, inputs);
    pick_batches(alone_call, {b});
    alone_call.problem.batch = 1;
    const AttentionProblem& one = alone_call.problem;
    const AttentionInputs& values = alone_call.inputs;
    if (not_declared(context.declaration(), one)) continue;
    const Observation seen = context.call(one, values);
    const std::string what = "sequence " + std::to_string(b) + " alone";
    const auto expected = context.expected(one, values);
    Observation part;
    part.o = part_of(together.o, problem.batch, b);
    part.o_bits = part_of(together.o_bits, problem.batch, b);
    part.lse = part_of(together.lse, problem.batch, b);
    part.lse_bits = part_of(together.lse_bits, problem.batch, b);
    const CaseResult alone = judge_outputs(context, one, *expected, seen);
    const CaseResult batched = judge_outputs(context, one, *expected, part);
    if (alone.verdict == Verdict::unsupported || alone.verdict == Verdict::error) return alone;
    if (is_failure(alone.verdict) && is_failure(batched.verdict)) {
      result = wrong_anyway();
      continue;
    }
    if (is_failure(alone.verdict)) return broken_by(alone, what + ", though not in its batch");
    if (is_failure(batched.verdict))
      return broken_by(batched, what + " is right, in its batch not");
    if (!context.declaration().batch_invariant) continue;
    CaseResult changed =
        differing_bits(one, part, seen, {}, Reason::law_broken,
                       "calling " + what + ", though batch_invariant is promised,");
    if (is_failure(changed.verdict)) return changed;
  }
  return result;
}

ATTEST_REQUIREMENT(inv_batch,
                   {
                       .id = "INV-BATCH",
                       .sentence = "a sequence gives the same values alone and in a batch, and the "
                                   "same bits where that is promised",
                       .adapt = adapt,
                       .check = check,
                       .share = 120,
                       .of_decode = "CACHE-BATCH",
                   });

}  // namespace
}  // namespace attest
