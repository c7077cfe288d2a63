// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x626f7264u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.cu_seqlens_q.clear();
  problem.cu_seqlens_k.clear();
  problem.batch = std::max<std::int64_t>(problem.batch, 2);
  problem = law_sized(std::move(problem), declaration);
  if (problem.batch < 2) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  const auto order = shuffled(problem, kTag, problem.batch);
  pick_batches(restated, order);
  Same same;
  same.row_of.resize(num_rows(problem));
  const std::int64_t rows = problem.num_heads * problem.q_len;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t row = 0; row < rows; ++row)
      same.row_of[static_cast<std::size_t>(order[static_cast<std::size_t>(b)] * rows + row)] =
          b * rows + row;
  return check_same(context, problem, std::move(restated), same, true, "permuting the sequences");
}

ATTEST_REQUIREMENT(law_batch_order,
                   {
                       .id = "LAW-BATCH-ORDER",
                       .sentence = "the sequences of a batch in another order give the same rows",
                       .adapt = adapt,
                       .check = check,
                       .share = 50,
                   });

}  // namespace
}  // namespace attest
