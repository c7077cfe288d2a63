// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x676e616eu;
/// Below this weight a kernel may skip the key.
constexpr double kLeastWeight = 0x1p-20;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.dropout_p = 0;  // what NaN times a dropped weight gives is open
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || small->dropout_p > 0) return std::nullopt;
  return small;
}

/// A NaN of dO went in, and this element does not show it.
CaseResult lost(const AttentionProblem& problem, Gradient gradient, std::size_t flat,
                double actual) {
  return element_failure(
      problem, output_of(gradient), flat, std::numeric_limits<double>::quiet_NaN(), actual,
      Reason::nan_lost,
      "a NaN in dO does not reach " + element_name(problem, output_of(gradient), flat));
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  GradientCall base;
  if (auto result = call_gradients(context, problem, context.inputs(problem), base)) return *result;
  std::vector<std::size_t> ordinary;
  for (std::size_t row = 0; row < base.expected.rows.size(); ++row)
    if (base.expected.rows[row] == RowKind::ordinary) ordinary.push_back(row);
  if (ordinary.empty()) return not_sayable();
  const auto row = static_cast<std::int64_t>(ordinary[static_cast<std::size_t>(
      chosen(problem, kTag, static_cast<std::int64_t>(ordinary.size())))]);
  const std::int64_t i = row % problem.q_len, h = row / problem.q_len % problem.num_heads;
  const std::int64_t b = row / problem.q_len / problem.num_heads;
  const std::int64_t c = chosen(problem, kTag + 1, problem.v_head_dim);

  AttentionInputs inputs = base.inputs;
  inputs.d_o.at(b, h, i, c) = std::numeric_limits<double>::quiet_NaN();
  const Observation seen = context.call(problem, inputs);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const auto values = [&](Gradient gradient) -> const std::vector<double>& {
    return seen.gradients[static_cast<std::size_t>(gradient)].values;
  };
  CaseResult result;
  const auto wants_nan = [&](Gradient gradient, std::size_t flat) {
    ++result.elements_compared;
    if (result.verdict == Verdict::fail || !std::isfinite(values(gradient)[flat])) return;
    result = lost(problem, gradient, flat, values(gradient)[flat]);
  };
  for (std::int64_t x = 0; wants_gradient(problem, Gradient::q) && x < problem.head_dim; ++x)
    wants_nan(Gradient::q, inputs.q.index(b, h, i, x));
  const RowTrace trace = trace_row(problem, base.inputs, b, h, i);
  const std::int64_t g = head_group(problem, h);
  for (const RowTrace::Key& key : trace.keys) {
    if (!key.visible || key.weight < kLeastWeight) continue;
    if (wants_gradient(problem, Gradient::v))
      wants_nan(Gradient::v, inputs.v.index(b, g, key.j, c));
    for (std::int64_t x = 0; wants_gradient(problem, Gradient::k) && x < problem.head_dim; ++x)
      wants_nan(Gradient::k, inputs.k.index(b, g, key.j, x));
    if (wants_gradient(problem, Gradient::bias))
      wants_nan(Gradient::bias, inputs.bias.broadcast_index(b, h, i, key.j));
  }
  return result;
}

ATTEST_REQUIREMENT(
    grad_nan_visible,
    {
        .id = "GRAD-NAN-VISIBLE",
        .sentence = "a NaN in dO comes out: in dQ of its row, and in dK, dV and dBias of the keys "
                    "that the row sees",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 25,
    });

}  // namespace
}  // namespace attest
