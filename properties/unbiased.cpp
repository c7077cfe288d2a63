// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::int64_t kRows = 192;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.data = Family::gaussian;
  problem.v_data.reset();
  problem.literal = {};
  problem.dropout_p = 0;
  problem.bias = problem.bias == BiasKind::lowest ? BiasKind::none : problem.bias;
  problem.batch = std::max<std::int64_t>(problem.batch, 1);
  problem.kv_len = std::clamp<std::int64_t>(problem.kv_len, 32, 160);
  const std::int64_t per_head = kRows / (problem.batch * problem.num_heads) + 1;
  problem.q_len = std::max(problem.q_len, per_head);
  problem.head_dim = std::min<std::int64_t>(problem.head_dim, 64);
  problem.v_head_dim = std::clamp<std::int64_t>(problem.v_head_dim, 1, 64);
  // A nearly one-hot row rounds back to that key's v, which the type holds exactly: an honest lean
  // along the temperature (scores of +-32: z = 1.1, t = 6.1 over 194 rows).
  if (effective_scale(problem) > 1 / std::sqrt(static_cast<double>(problem.head_dim)))
    problem.scale.reset();
  problem.alibi = AlibiKind::none;
  problem.alibi_inside_softcap = false;
  problem.slopes = SlopesKind::standard;
  problem = make_legal(problem, declaration);
  if (problem.batch * problem.num_heads * problem.q_len < kRows || problem.kv_len < 32)
    return std::nullopt;
  // A declared truncating accumulator loses towards 0 by its nature: z = -0.51 measured.
  if (declaration.profile_for(problem.dtype).c_acc > 1) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const Expected expected =
      expect(problem, context.inputs(problem), context.declaration().profile_for(problem.dtype),
             {.tolerance = true, .temperature = true});
  CaseResult worst;
  for (const Output output : {Output::o, Output::lse}) {
    const std::vector<double>& actual = output == Output::o ? seen.o : seen.lse;
    if (actual.empty()) continue;
    // Errors beyond the tolerance have another cause, which ORACLE-O and ORACLE-LSE name.
    const bool generic = is_generic(problem);
    if (is_failure(judge_values(problem, expected, output, actual, generic).verdict))
      return {.verdict = Verdict::not_judged, .detail = "values are wrong beyond any bias"};
    CaseResult result = judge_bias(problem, expected, output, actual, generic);
    if (is_failure(result.verdict)) return result;
    // A warning about o is not covered up by an lse without one.
    if (worst.verdict != Verdict::warn) worst = std::move(result);
  }
  return worst;
}

ATTEST_REQUIREMENT(
    unbiased,
    {
        .id = "ORACLE-UNBIASED",
        .sentence =
            "errors have no common direction over the rows of a problem (truncation, missing "
            "mass, a wrong temperature)",
        .adapt = adapt,
        .check = check,
        .share = 20,
    });

}  // namespace
}  // namespace attest
