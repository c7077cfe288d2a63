// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x73686674u;

/// The constant comes in by a bias; else by a channel in which every key holds 1.
bool by_bias(const AttentionProblem& problem, const Declaration& declaration) {
  return declaration.has(Feature::bias) && chosen(problem, kTag, 2) == 0;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.sink = SinkKind::none;  // its logit would have to be shifted too
  if (by_bias(problem, declaration)) {
    problem.bias = BiasKind::none;
  } else {
    problem.softcap = 0;
    problem.alibi_inside_softcap = false;
    problem.rope = RopePairing::none;
  }
  return law_sized(std::move(problem), declaration);
}

/// What is added to every score of row i: exact in bf16, and near -120 and +120 in half of the
/// cases.
double shift_of(const AttentionProblem& problem, std::int64_t i) {
  constexpr double kShifts[] = {-120, 120, -118, 116, 3, -7, 0.75, -1.5};
  const auto base = static_cast<std::size_t>(chosen(problem, kTag + 1, 8));
  return kShifts[base] + static_cast<double>(i % 4);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement plain = restate(problem, context.inputs(problem));
  Restatement shifted = plain;
  std::vector<double> shifts;
  for (std::int64_t i = 0; i < problem.q_len; ++i) shifts.push_back(shift_of(problem, i));
  if (by_bias(problem, context.declaration())) {
    shifted.inputs.bias = Dense<double>({1, 1, problem.q_len, 1});
    shifted.inputs.bias.values = shifts;
  } else {
    const double scale = effective_scale(problem);
    for (double& shift : shifts) {
      const double channel = scale == 0 ? shift : round_to(problem.dtype, shift / scale);
      if (!std::isfinite(channel)) return not_sayable();
      shift = channel;
    }
    const auto last = static_cast<std::size_t>(problem.head_dim - 1);
    const auto width = static_cast<std::size_t>(problem.head_dim);
    for (std::size_t n = last; n < plain.inputs.k.values.size(); n += width)
      plain.inputs.k.values[n] = shifted.inputs.k.values[n] = 1;
    const auto rows = static_cast<std::size_t>(problem.q_len);
    for (std::size_t n = last; n < plain.inputs.q.values.size(); n += width) {
      plain.inputs.q.values[n] = 0;
      shifted.inputs.q.values[n] = shifts[n / width % rows];
    }
    for (double& shift : shifts) shift *= scale;
  }
  if (!settle(plain, context.declaration()) || !settle(shifted, context.declaration()))
    return not_sayable();

  LawCall base, other;
  if (auto result = further_call(context, base, plain, false, base)) return *result;
  if (auto result = further_call(context, base, shifted, false, other)) return *result;
  Same same;
  same.lse_shift.resize(num_rows(problem));
  for (std::size_t row = 0; row < same.lse_shift.size(); ++row)
    same.lse_shift[row] = shifts[row % static_cast<std::size_t>(problem.q_len)];
  LawJudge judge(problem, "undoing a constant added to all scores of a row");
  compare_same(base, other, same, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_shift,
    {
        .id = "LAW-SHIFT",
        .sentence =
            "a constant added to all scores of a row leaves o alone and is added to lse, also "
            "where all scores come to lie near -120 or +120",
        .adapt = adapt,
        .check = check,
        .share = 60,
    });

}  // namespace
}  // namespace attest
