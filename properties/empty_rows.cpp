// SPDX-License-Identifier: Apache-2.0
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

bool may_have_empty_rows(const AttentionProblem& problem) {
  return problem.kv_len == 0 || problem.mask == MaskKind::empty_rows ||
         problem.mask == MaskKind::all_false || problem.mask == MaskKind::sparse ||
         (problem.base == Base::causal && problem.q_len > problem.kv_len) ||
         !problem.seqlens_k.empty() || !problem.cu_seqlens_k.empty();
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (may_have_empty_rows(problem)) return problem;
  if (declaration.has(Feature::mask)) {
    problem.mask = MaskKind::empty_rows;
    problem.mask_axes = {};
  } else if (declaration.has(Feature::causal) && declaration.has(Feature::align_bottom_right)) {
    problem.base = Base::causal;
    problem.align = Align::bottom_right;
    problem.q_offset.clear();
    problem.prefix_len.clear();
    problem.q_len = problem.kv_len + 1;
  } else if (declaration.has(Feature::seqlens_k)) {
    problem.seqlens_k.assign(static_cast<std::size_t>(problem.batch), 0);
  } else if (declaration.has(Feature::empty_dims)) {
    problem.kv_len = 0;
  } else {
    return std::nullopt;
  }
  problem = make_legal(problem, declaration);
  if (!may_have_empty_rows(problem)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  Expected expected = context.expected(problem);
  for (RowKind& kind : expected.rows)
    if (kind != RowKind::empty && kind != RowKind::empty_sink && kind != RowKind::padding)
      kind = RowKind::unspecified;
  CaseResult of_o = judge_values(problem, expected, Output::o, seen.o, is_generic(problem));
  of_o.ratio_output.clear();
  if (is_failure(of_o.verdict) || seen.lse.empty()) return of_o;
  CaseResult of_lse = judge_values(problem, expected, Output::lse, seen.lse, is_generic(problem));
  of_lse.ratio_output.clear();
  of_lse.elements_compared += of_o.elements_compared;
  if (of_lse.verdict == Verdict::not_judged) return of_o;
  return of_lse;
}

ATTEST_REQUIREMENT(
    empty_rows,
    {
        .id = "ROWS-EMPTY",
        .sentence =
            "a query row that sees no key, and a padding row, give exactly what the convention "
            "says (o = 0, lse = -inf or the sink)",
        .adapt = adapt,
        .check = check,
        .share = 200,
        .of_decode = "CACHE-EMPTY-ROWS",
    });

}  // namespace
}  // namespace attest
