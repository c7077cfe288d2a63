// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x72706e74u;

/// base' = base * ntk^(R / (R - 2)) as a double, and whether it is that exactly: the exponent is 2
/// for R = 4 and 3/2 for R = 6.
double scaled_base(const AttentionProblem& problem) {
  const auto dim = static_cast<double>(effective_rope_dim(problem));
  return problem.rope_base * std::pow(problem.rope_ntk, dim / (dim - 2));
}

/// Powers of 4 alone, so that both exponents above give powers of two.
bool exact(const AttentionProblem& problem) {
  const std::int64_t dim = effective_rope_dim(problem);
  const double root = std::sqrt(problem.rope_ntk);
  int exponent = 0;
  return (dim == 4 || dim == 6) && std::frexp(root, &exponent) == 0.5;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  const bool half = declaration.has(Feature::rope_half);
  if (!declaration.has(Feature::rope_ntk) || (!half && !declaration.has(Feature::rope_interleaved)))
    return std::nullopt;
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 4);
  if (problem.rope == RopePairing::none)
    problem.rope =
        half && chosen(problem, kTag, 2) == 0 ? RopePairing::half : RopePairing::interleaved;
  if (problem.rope_dim != 0) problem.rope_dim = std::max<std::int64_t>(problem.rope_dim, 4);
  problem = law_sized(std::move(problem), declaration);
  if (problem.rope == RopePairing::none || effective_rope_dim(problem) < 4) return std::nullopt;
  if (problem.rope_ntk == 1) problem.rope_ntk = chosen(problem, kTag + 1, 2) == 0 ? 4 : 2;
  // In double both bases must be the same number; f32 and below do not see their last bit.
  if (problem.dtype == DType::f64 && !exact(problem)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  restated.problem.rope_base = scaled_base(problem);
  restated.problem.rope_ntk = 1;
  if (!settle(restated, context.declaration())) return not_sayable();
  LawCall base, other;
  if (auto result = first_call(context, problem, base)) return *result;
  if (auto result = further_call(context, base, restated, true, other)) return *result;
  LawJudge judge(problem, "a larger base in place of the NTK factor");
  compare_same(base, other, {.bends = true}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(law_rope_ntk,
                   {
                       .id = "LAW-ROPE-NTK",
                       .sentence = "an NTK factor s of RoPE is the base times s^(R/(R-2))",
                       .adapt = adapt,
                       .check = check,
                       .share = 30,
                   });

}  // namespace
}  // namespace attest
