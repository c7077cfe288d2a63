// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x676b6f72u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.kv_len = std::max<std::int64_t>(problem.kv_len, 2);
  drop_positions(problem);
  drop_ranges(problem);
  problem.blocks = false;
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || has_positions(*small) || has_ranges(*small) || small->blocks || small->kv_len < 2 ||
      small->layout == Layout::broadcast)
    return std::nullopt;
  return small;
}

/// Rows of [B, H, rows, D] put back to where they came from.
void put_back(const std::vector<std::int64_t>& order, std::int64_t width,
              std::vector<double>& values) {
  const std::vector<double> moved = values;
  const auto rows = static_cast<std::int64_t>(order.size());
  if (rows == 0 || width == 0) return;
  for (std::size_t x = 0; x < values.size(); ++x) {
    const auto flat = static_cast<std::int64_t>(x);
    const std::int64_t head = flat / (rows * width), row = flat / width % rows;
    const std::int64_t to =
        (head * rows + order[static_cast<std::size_t>(row)]) * width + flat % width;
    values[static_cast<std::size_t>(to)] = moved[x];
  }
}

/// The other call with its dK, dV and dBias in the order of the case.
void put_back(const std::vector<std::int64_t>& order, GradientCall& call) {
  const AttentionProblem& p = call.problem;
  const auto both = [&](Gradient gradient, std::int64_t width) {
    const auto n = static_cast<std::size_t>(gradient);
    if (!wants_gradient(p, gradient)) return;
    put_back(order, width, call.seen.gradients[n].values);
    ExpectedTensor& expected = call.expected.gradients[n];
    for (auto* values : {&expected.value, &expected.t_mixed, &expected.t_stat})
      put_back(order, width, *values);
  };
  both(Gradient::k, p.head_dim);
  both(Gradient::v, p.v_head_dim);
  if (p.bias_axes.k) both(Gradient::bias, 1);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const std::vector<std::int64_t> order = shuffled(problem, kTag, problem.kv_len);
  Restatement restated = restate(problem, context.inputs(problem));
  pick_keys(restated, order);
  return check_restated_gradients(
      context, problem, std::move(restated),
      [&order](GradientCall& call) { put_back(order, call); }, "permuting the keys");
}

ATTEST_REQUIREMENT(
    grad_key_order,
    {
        .id = "GRAD-KEY-ORDER",
        .sentence =
            "where nothing depends on positions, keys in another order have the same gradients",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 40,
    });

}  // namespace
}  // namespace attest
