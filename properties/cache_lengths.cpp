// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6c656e67u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.batch = std::max<std::int64_t>(problem.batch, 2);
  problem.kv_len = std::max(problem.kv_len, problem.q_len + 1);
  problem.bias = problem.bias == BiasKind::t5 ? BiasKind::none : problem.bias;
  if (problem.seqlens_k.empty())
    problem.seqlens_k.assign(static_cast<std::size_t>(problem.batch), problem.kv_len);
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode || problem.batch < 2 || problem.seqlens_k.empty() ||
      problem.kv_len == problem.q_len || problem.q_len < 1)
    return std::nullopt;
  return problem;
}

/// One sequence gets another length; nullopt where the others could not stay as they are.
std::optional<AttentionProblem> with_other_length(const AttentionProblem& problem,
                                                  const Declaration& declaration,
                                                  std::int64_t which) {
  AttentionProblem other = problem;
  std::int64_t& length = other.seqlens_k[static_cast<std::size_t>(which)];
  const std::int64_t least = new_rows(problem, which);
  length = length > least ? least + chosen(problem, kTag, length - least) : problem.kv_len;
  if (problem_error(other) || not_declared(declaration, other) || other == problem)
    return std::nullopt;
  return other;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& before = context.first(problem);
  if (auto result = judge_call(before, context.declaration(), problem)) return *result;
  const std::int64_t which = chosen(problem, kTag + 1, problem.batch);
  const auto other = with_other_length(problem, context.declaration(), which);
  if (!other) return not_sayable();
  const Observation after = context.call(*other, context.inputs(problem));
  if (auto result = judge_call(after, context.declaration(), *other)) return *result;
  std::vector<std::uint8_t> watched(num_rows(problem), 1);
  for (std::int64_t h = 0; h < problem.num_heads; ++h)
    for (std::int64_t i = 0; i < problem.q_len; ++i) watched[row_index(problem, which, h, i)] = 0;
  // The longest sequence may decide on the order of sums, not on values.
  return compare_rows(context, problem, before, after, watched, Reason::law_broken,
                      "another length of sequence " + std::to_string(which),
                      context.declaration().batch_invariant);
}

ATTEST_REQUIREMENT(cache_lengths,
                   {
                       .id = "CACHE-LENGTHS",
                       .sentence = "another length of one sequence changes no other sequence: not "
                                   "its values, and no bit where batch_invariant is promised",
                       .operation = Operation::decode,
                       .adapt = adapt,
                       .check = check,
                       .share = 80,
                   });

}  // namespace
}  // namespace attest
