// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"
#include "reference/audit.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x67646966u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (problem.data != Family::list) problem.data = Family::integers;
  problem.v_data.reset();
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small) return std::nullopt;
  if (small->bias == BiasKind::lowest) small->bias = BiasKind::normal;
  if (small->d_o_data != Family::list) small->d_o_data = Family::gaussian;
  return small;
}

/// Far enough that o changes by more than it is rounded, near enough that it bends little.
double step_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-12;
    case DType::f32: return 0x1p-6;
    case DType::f16:
    case DType::bf16: return 0x1p-3;
  }
  return 0;
}

/// One forward call, and dO.o + dLSE.lse of it: the kernel's, the exact one, and how far the former
/// may be off.
struct Loss {
  double kernel = 0, exact = 0, allowed = 0;
  bool judged = true;
};

void add_loss(const std::vector<double>& weights, const std::vector<double>& seen,
              const ExpectedTensor& expected, std::size_t first, std::size_t count, Loss& loss) {
  for (std::size_t x = first; x < first + count; ++x) {
    const double w = weights[x];
    if (w == 0) continue;
    loss.judged &= std::isfinite(expected.t_mixed[x]) && std::isfinite(seen[x]);
    loss.kernel += w * seen[x];
    loss.exact += w * expected.value[x] + w * expected.low[x];
    loss.allowed += std::fabs(w) * (expected.t_mixed[x] + 0x1p-50 * std::fabs(expected.value[x]));
  }
}

std::optional<CaseResult> loss_at(CaseContext& context, const AttentionProblem& problem,
                                  const AttentionInputs& inputs, Loss& loss) {
  const AttentionProblem forward = forward_of(problem);
  const Observation seen = context.call(forward, inputs);
  if (auto result = judge_call(seen, context.declaration(), forward)) return *result;
  AttentionInputs values = inputs;
  values.d_o = values.d_lse = {};
  const std::shared_ptr<const Expected> answer = context.expected(forward, values);
  const Expected& expected = *answer;
  const auto width = static_cast<std::size_t>(problem.v_head_dim);
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    const RowKind kind = expected.rows[row];
    if (kind == RowKind::padding || kind == RowKind::empty) continue;
    loss.judged &= kind == RowKind::ordinary || kind == RowKind::empty_sink;
    if (!loss.judged) return std::nullopt;
    add_loss(inputs.d_o.values, seen.o, expected.o, row * width, width, loss);
    if (inputs.d_lse.present) add_loss(inputs.d_lse.values, seen.lse, expected.lse, row, 1, loss);
  }
  return std::nullopt;
}

CaseResult unjudged() {
  return {.verdict = Verdict::not_judged,
          .detail = "a row lies outside what can be judged by value"};
}

/// The tensor moved by +-step, with signs from the seed; -inf stays.
void move(const AttentionProblem& problem, Gradient gradient, double step,
          AttentionInputs& inputs) {
  const bool statistic = gradient == Gradient::slopes || gradient == Gradient::sink;
  const DType type = statistic && problem.dtype != DType::f64 ? DType::f32 : problem.dtype;
  std::vector<double>& values = tensor_of(inputs, gradient).values;
  for (std::size_t x = 0; x < values.size(); ++x)
    if (std::isfinite(values[x]))
      values[x] = round_to(type, values[x] + (chosen(problem, kTag + x + 1, 2) ? step : -step));
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  std::vector<Gradient> wanted;
  for_each_gradient(problem, [&](Gradient gradient) { wanted.push_back(gradient); });
  if (wanted.empty()) return unjudged();
  const Gradient gradient = wanted[static_cast<std::size_t>(
      chosen(problem, kTag, static_cast<std::int64_t>(wanted.size())))];

  GradientCall call;
  if (auto result = call_gradients(context, problem, context.inputs(problem), call)) return *result;
  AttentionInputs above = call.inputs, below = call.inputs;
  move(problem, gradient, step_of(problem.dtype), above);
  move(problem, gradient, -step_of(problem.dtype), below);
  // k and v that the sequences share move together, and have a gradient for each.
  Loss high, low;
  if (auto result = loss_at(context, problem, above, high)) return *result;
  if (auto result = loss_at(context, problem, below, low)) return *result;
  if (!high.judged || !low.judged) return unjudged();

  double along = 0, exact = 0, allowed = high.allowed + low.allowed;
  const std::vector<double>&up = tensor_of(above, gradient).values,
        &down = tensor_of(below, gradient).values;
  const ExpectedTensor& expected = call.expected.gradients[static_cast<std::size_t>(gradient)];
  CaseResult result;
  for (std::size_t x = 0; x < up.size(); ++x) {
    if (!std::isfinite(up[x])) continue;
    const double moved = up[x] - down[x];
    if (!std::isfinite(expected.t_mixed[x])) return unjudged();
    along += moved * call.values(gradient)[x];
    exact += moved * expected.value[x];
    allowed += std::fabs(moved) * (expected.t_mixed[x] + 0x1p-50 * std::fabs(expected.value[x]));
    ++result.elements_compared;
  }
  const double change = high.kernel - low.kernel;
  // What the function bends is known exactly, and no mistake of the kernel.
  allowed += std::fabs(high.exact - low.exact - exact);
  if (std::fabs(change - along) <= allowed) return result;
  result.verdict = Verdict::fail;
  result.reason = Reason::law_broken;
  result.detail = fmt::format(
      "{} does not belong to the kernel's own forward: moved by {} in every element, dO.o + "
      "dLSE.lse changes by {:.6g} where the gradient says {:.6g} (allowed {:.3g})",
      name(output_of(gradient)), step_of(problem.dtype), change, along, allowed);
  return result;
}

ATTEST_REQUIREMENT(
    grad_differences,
    {
        .id = "GRAD-DIFFERENCES",
        .sentence =
            "each gradient is the slope of the kernel's own forward, by differences along a random "
            "direction",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 120,
    });

}  // namespace
}  // namespace attest
