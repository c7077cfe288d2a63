// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  auto small = backward_law_sized(std::move(problem), declaration);
  if (small) small->data = small->data == Family::zeros ? Family::gaussian : small->data;
  return small;
}

bool is_silent(std::int64_t row) { return row % 3 == 1; }

void silence(Dense<double>& tensor) {
  if (!tensor.present) return;
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(tensor.shape[3], 1));
  for (std::size_t x = 0; x < tensor.values.size(); ++x)
    if (is_silent(static_cast<std::int64_t>(x / width) % tensor.shape[2])) tensor.values[x] = 0;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  AttentionInputs inputs = context.inputs(problem);
  silence(inputs.d_o), silence(inputs.d_lse);
  GradientCall base, moved;
  if (auto result = call_gradients(context, problem, inputs, base)) return *result;
  LawJudge judge(problem, "a row whose dO and dLSE are 0");
  const auto dim = static_cast<std::size_t>(std::max<std::int64_t>(problem.head_dim, 1));
  const std::vector<double>& d_q = base.values(Gradient::q);
  for (std::size_t x = 0; x < d_q.size(); ++x)
    if (is_silent(static_cast<std::int64_t>(x / dim) % problem.q_len))
      judge.add(Output::d_q, x, 0, d_q[x], 0, true);

  AttentionInputs other = inputs;
  for (std::size_t x = 0; x < other.q.values.size(); ++x)
    if (is_silent(static_cast<std::int64_t>(x / dim) % problem.q_len)) other.q.values[x] *= -0.5;
  if (auto result = call_gradients(context, problem, other, moved)) return *result;
  for_each_gradient(problem, [&](Gradient gradient) {
    const bool exact = context.declaration().deterministic;
    const std::vector<double>&was = base.values(gradient), &is = moved.values(gradient);
    for (std::size_t flat = 0; flat < was.size(); ++flat)
      judge.add(output_of(gradient), flat, was[flat], is[flat],
                !std::isfinite(base.allowed(gradient, flat) + moved.allowed(gradient, flat))
                    ? std::numeric_limits<double>::infinity()
                : exact ? 0
                        : base.allowed(gradient, flat) + moved.allowed(gradient, flat),
                true);
  });
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    grad_zero_rows,
    {
        .id = "GRAD-ZERO-ROWS",
        .sentence = "a row whose dO and dLSE are 0 has dQ = 0, and its q moves no other gradient",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
