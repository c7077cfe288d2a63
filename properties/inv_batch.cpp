// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "properties/judge_outputs.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration&) {
  if (problem.batch < 2) return std::nullopt;
  return problem;
}

/// Sequence b of a tensor whose first axis is the batch, or is shared by it.
template <class T>
Dense<T> one_of(const Dense<T>& all, std::int64_t b) {
  if (!all.present || all.shape[0] == 1) return all;
  Dense<T> one({1, all.shape[1], all.shape[2], all.shape[3]});
  const auto size = static_cast<std::ptrdiff_t>(one.values.size());
  std::copy_n(all.values.begin() + b * size, size, one.values.begin());
  return one;
}

AttentionInputs one_of(const AttentionInputs& all, std::int64_t b) {
  AttentionInputs one;
  one.q = one_of(all.q, b);
  one.k = one_of(all.k, b);
  one.v = one_of(all.v, b);
  one.bias = one_of(all.bias, b);
  one.slopes = one_of(all.slopes, b);
  one.sink = all.sink;
  one.mask = one_of(all.mask, b);
  one.blocks = one_of(all.blocks, b);
  one.keep = one_of(all.keep, b);
  return one;
}

AttentionProblem one_of(const AttentionProblem& all, std::int64_t b) {
  AttentionProblem one = all;
  one.batch = 1;
  for (auto* list : {&one.q_offset, &one.prefix_len, &one.seqlens_q, &one.seqlens_k,
                     &one.left_pad_q, &one.left_pad_k})
    if (!list->empty()) *list = {(*list)[static_cast<std::size_t>(b)]};
  return one;
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
    const AttentionProblem one = one_of(problem, b);
    if (not_declared(context.declaration(), one)) continue;
    const AttentionInputs values = one_of(inputs, b);
    const Observation seen = context.call(one, values);
    const std::string what = "sequence " + std::to_string(b) + " alone";
    const Expected expected = expect(one, values, context.declaration().profile_for(problem.dtype));
    Observation part;
    part.o = part_of(together.o, problem.batch, b);
    part.o_bits = part_of(together.o_bits, problem.batch, b);
    part.lse = part_of(together.lse, problem.batch, b);
    part.lse_bits = part_of(together.lse_bits, problem.batch, b);
    const CaseResult alone = judge_outputs(context, one, expected, seen);
    const CaseResult batched = judge_outputs(context, one, expected, part);
    if (alone.verdict == Verdict::unsupported || alone.verdict == Verdict::error) return alone;
    if (is_failure(alone.verdict) && is_failure(batched.verdict)) {
      result = wrong_anyway();
      continue;
    }
    if (is_failure(alone.verdict)) return broken_by(alone, what + ", though not in its batch");
    if (is_failure(batched.verdict))
      return broken_by(batched, what + " is right, in its batch not");
    if (!context.declaration().batch_invariant) continue;
    if (auto changed = differing_bits(one, part, seen, Reason::law_broken,
                                      "calling " + what + ", though batch_invariant is promised,"))
      return *changed;
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
                   });

}  // namespace
}  // namespace attest
