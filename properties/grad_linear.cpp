// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x676c696eu;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  return backward_law_sized(std::move(problem), declaration);
}

/// dO and dLSE in the rows whose number has the parity, times the factor.
AttentionInputs part_of(const AttentionInputs& inputs, std::int64_t parity, double factor) {
  AttentionInputs part = inputs;
  const auto keep = [&](Dense<double>& tensor) {
    if (!tensor.present) return;
    for (std::size_t x = 0; x < tensor.values.size(); ++x) {
      const auto width = static_cast<std::size_t>(std::max<std::int64_t>(tensor.shape[3], 1));
      const auto row =
          static_cast<std::int64_t>(x / width) % std::max<std::int64_t>(tensor.shape[2], 1);
      tensor.values[x] = parity < 0 || row % 2 == parity ? factor * tensor.values[x] : 0;
    }
  };
  keep(part.d_o), keep(part.d_lse);
  return part;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const AttentionInputs inputs = context.inputs(problem);
  GradientCall base;
  if (auto result = call_gradients(context, problem, inputs, base)) return *result;
  if (chosen(problem, kTag, 2) == 0) {
    GradientCall twice;
    if (auto result = call_gradients(context, problem, part_of(inputs, -1, 2), twice))
      return *result;
    LawJudge judge(problem, "half of the gradients of twice dO and dLSE");
    compare_gradients(base, {{&twice, 0.5}}, judge);
    return std::move(judge).finish();
  }
  GradientCall even, odd;
  if (auto result = call_gradients(context, problem, part_of(inputs, 0, 1), even)) return *result;
  if (auto result = call_gradients(context, problem, part_of(inputs, 1, 1), odd)) return *result;
  LawJudge judge(problem, "dO of every other row, and then of the others,");
  compare_gradients(base, {{&even, 1}, {&odd, 1}}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(grad_linear,
                   {
                       .id = "GRAD-LINEAR",
                       .sentence = "gradients are linear: those of dO in some rows and of dO in "
                                   "the others add up, and twice dO gives twice as much",
                       .operation = Operation::backward,
                       .skip = skip_without_backward,
                       .adapt = adapt,
                       .check = check,
                       .share = 40,
                   });

}  // namespace
}  // namespace attest
