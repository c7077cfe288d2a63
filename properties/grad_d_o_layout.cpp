// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

constexpr Layout kLayouts[] = {Layout::bhld, Layout::blhd, Layout::bhdl, Layout::strided,
                               Layout::broadcast};

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || small->layout == Layout::kv_packed || small->layout == Layout::far)
    return std::nullopt;
  small->d_o_layout.reset();
  return small;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  GradientCall base;
  if (auto result = call_gradients(context, problem, context.inputs(problem), base)) return *result;
  // One number for all of dO, so that it may lie in one place too.
  AttentionInputs same = base.inputs;
  for (double& x : same.d_o.values) x = base.inputs.d_o.values.front();
  GradientCall whole;
  if (auto result = call_gradients(context, problem, same, whole)) return *result;
  LawJudge judge(problem, "another layout of dO");
  for (const Layout layout : kLayouts) {
    if (layout == problem.layout || !serves_layout(context.declaration(), layout)) continue;
    AttentionProblem moved = problem;
    moved.d_o_layout = layout;
    moved.literal.d_o.clear();
    if (moved.d_o_data == Family::list) moved.d_o_data = Family::gaussian;
    const GradientCall& was = layout == Layout::broadcast ? whole : base;
    const Observation seen = context.call(moved, was.inputs);
    if (auto result = judge_call(seen, context.declaration(), moved)) return *result;
    for_each_gradient(problem, [&](Gradient gradient) {
      const std::vector<double>& is = seen.gradients[static_cast<std::size_t>(gradient)].values;
      for (std::size_t flat = 0; flat < is.size(); ++flat)
        judge.add(output_of(gradient), flat, was.values(gradient)[flat], is[flat],
                  2 * was.allowed(gradient, flat), true);
    });
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    grad_d_o_layout,
    {
        .id = "GRAD-DOUT-LAYOUT",
        .sentence =
            "how dO lies in memory, expanded from one number or transposed, changes nothing",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 25,
    });

}  // namespace
}  // namespace attest
