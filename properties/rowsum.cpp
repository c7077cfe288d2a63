// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.v_data = Family::constant_v;
  problem.sink = SinkKind::none;
  problem.dropout_p = 0;
  problem.literal = {};
  if (problem.data == Family::list) problem.data = Family::gaussian;
  problem = make_legal(problem, declaration);
  if (problem.v_data != Family::constant_v) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const AttentionInputs& inputs = context.inputs(problem);
  if (inputs.v.values.empty()) return {};
  // The law, in place of the oracle's values: weights that sum to 1 reproduce the constant. Only
  // the width of the tolerance comes from the oracle.
  const double constant = inputs.v.values.front();
  Expected law = context.expected(problem);
  for (std::size_t flat = 0; flat < law.o.value.size(); ++flat) {
    if (law.rows[flat / static_cast<std::size_t>(problem.v_head_dim)] != RowKind::ordinary)
      continue;
    law.o.value[flat] = constant;
    law.o.low[flat] = 0;
  }
  for (RowKind& kind : law.rows)
    if (kind != RowKind::ordinary) kind = RowKind::unspecified;
  CaseResult result = judge_values(problem, law, Output::o, seen.o, false);
  if (result.verdict == Verdict::fail && result.reason == Reason::wrong_value)
    result.reason = Reason::law_broken;
  result.ratio_output.clear();
  return result;
}

ATTEST_REQUIREMENT(
    rowsum,
    {
        .id = "SOFTMAX-ROWSUM",
        .sentence = "the weights of every non-empty row sum to 1: a constant V comes out unchanged",
        .adapt = adapt,
        .check = check,
        .share = 250,
        .of_decode = "CACHE-ROWSUM",
    });

}  // namespace
}  // namespace attest
