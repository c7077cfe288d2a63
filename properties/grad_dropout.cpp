// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.has(Feature::dropout)) return "not declared: dropout";
  return skip_without_backward(declaration);
}

bool is_square(const AttentionProblem& p) {
  return p.num_kv_heads == p.num_heads && p.v_head_dim == p.kv_len && p.q_len <= p.kv_len &&
         p.v_data == Family::identity_v && p.dropout_p > 0 && wants_gradient(p, Gradient::v) &&
         p.layout != Layout::broadcast;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (problem.dropout_p == 0) problem.dropout_p = 0.5;
  problem.num_heads = problem.num_kv_heads;
  problem.kv_len = std::clamp<std::int64_t>(std::max(problem.q_len, problem.kv_len), 1, 64);
  problem.q_len = std::clamp<std::int64_t>(problem.q_len, 1, problem.kv_len);
  problem.v_head_dim = problem.kv_len;
  problem.v_data = Family::identity_v;
  problem = to_backward(std::move(problem), declaration);
  problem.no_gradient[static_cast<std::size_t>(Gradient::v)] = false;
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small || !is_square(*small)) return std::nullopt;
  return small;
}

/// With v the identity o is the matrix of weights after dropout; with dO the identity dV is it too,
/// turned over.
CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  AttentionInputs inputs = context.inputs(problem);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t c = 0; c < problem.v_head_dim; ++c)
          inputs.d_o.at(b, h, i, c) = c == i ? 1 : 0;
  const AttentionProblem forward = forward_of(problem);
  const Observation seen = context.call(forward, inputs);
  if (auto result = judge_call(seen, context.declaration(), forward)) return *result;
  GradientCall call;
  if (auto result = call_gradients(context, problem, inputs, call)) return *result;
  LawJudge judge(problem, "the matrix of dropped weights, in the backward pass");
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t j = 0; j < problem.kv_len; ++j)
        for (std::int64_t i = 0; i < problem.v_head_dim; ++i, ++flat) {
          if (i >= problem.q_len) continue;
          const std::size_t row = row_index(problem, b, h, i);
          const std::size_t at =
              row * static_cast<std::size_t>(problem.v_head_dim) + static_cast<std::size_t>(j);
          if (call.expected.rows[row] != RowKind::ordinary) continue;
          judge.add(Output::d_v, flat, seen.o[at], call.values(Gradient::v)[flat],
                    call.expected.o.t_mixed[at] + call.allowed(Gradient::v, flat), true);
        }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    grad_dropout,
    {
        .id = "GRAD-DROPOUT",
        .sentence = "forward and backward drop the same weights: with v the identity o is the "
                    "matrix that dV is with dO the identity",
        .operation = Operation::backward,
        .skip = skip,
        .adapt = adapt,
        .check = check,
        .share = 25,
    });

}  // namespace
}  // namespace attest
