// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::gqa)) return std::nullopt;
  if (problem.num_kv_heads == problem.num_heads) problem.num_heads = 2 * problem.num_kv_heads;
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || small->num_kv_heads == small->num_heads) return std::nullopt;
  return small;
}

/// Elements of the heads of a group, added up.
std::vector<double> summed(const std::vector<double>& heads, std::int64_t batch,
                           std::int64_t groups, std::int64_t group, std::int64_t size) {
  std::vector<double> sums(static_cast<std::size_t>(batch * groups * size));
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < groups * group; ++h)
      for (std::int64_t x = 0; x < size; ++x, ++flat)
        sums[static_cast<std::size_t>((b * groups + h / group) * size + x)] += heads[flat];
  return sums;
}

/// The other call's dK and dV as those of shared heads.
void gather_groups(const AttentionProblem& p, GradientCall& call) {
  const std::int64_t group = p.num_heads / p.num_kv_heads;
  for (const auto& [gradient, channels] :
       {std::pair{Gradient::k, p.head_dim}, std::pair{Gradient::v, p.v_head_dim}}) {
    const auto n = static_cast<std::size_t>(gradient);
    if (!wants_gradient(p, gradient)) continue;
    ExpectedTensor& expected = call.expected.gradients[n];
    for (auto* values :
         {&call.seen.gradients[n].values, &expected.value, &expected.t_mixed, &expected.t_stat})
      *values = summed(*values, p.batch, p.num_kv_heads, group, p.kv_len * channels);
  }
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < problem.num_heads; ++h)
    heads.push_back(h / (problem.num_heads / problem.num_kv_heads));
  pick_kv_heads(restated, heads);
  restated.problem.num_kv_heads = problem.num_heads;
  return check_restated_gradients(
      context, problem, std::move(restated),
      [&problem](GradientCall& call) { gather_groups(problem, call); },
      "k and v repeated for every query head");
}

ATTEST_REQUIREMENT(
    grad_repeat,
    {
        .id = "GRAD-GQA-REPEAT",
        .sentence =
            "dK and dV of a shared head are the sums of those that its query heads have alone",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
