// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x67736866u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.softcap = 0;
  problem.rope = RopePairing::none;
  problem.sink = SinkKind::none;
  problem.data = Family::integers;  // keys that a shift keeps exact
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || small->softcap > 0 || small->rope != RopePairing::none ||
      small->sink != SinkKind::none || small->data != Family::integers)
    return std::nullopt;
  small->d_lse = false;
  small->literal.d_lse.clear();
  return small;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const AttentionInputs inputs = context.inputs(problem);
  AttentionInputs shifted = inputs;
  const auto dim = static_cast<std::size_t>(std::max<std::int64_t>(problem.head_dim, 1));
  for (std::size_t x = 0; x < shifted.k.values.size(); ++x)
    shifted.k.values[x] += static_cast<double>(chosen(problem, kTag + x % dim, 3)) - 1;
  GradientCall base, other;
  if (auto result = call_gradients(context, problem, inputs, base)) return *result;
  if (auto result = call_gradients(context, problem, shifted, other)) return *result;
  LawJudge judge(problem, "adding one vector to every key");
  compare_gradients(base, {{&other, 1}}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(grad_shift, {
                                   .id = "GRAD-SHIFT",
                                   .sentence = "adding one vector to every key changes no weight: "
                                               "without dLSE and sinks no gradient changes",
                                   .operation = Operation::backward,
                                   .skip = skip_without_backward,
                                   .adapt = adapt,
                                   .check = check,
                                   .share = 40,
                               });

}  // namespace
}  // namespace attest
