// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  auto small = backward_law_sized(std::move(problem), declaration);
  if (!small) return std::nullopt;
  small = with_hidden_keys(*small, declaration);
  if (!small || small->operation != Operation::backward) return std::nullopt;
  return small;
}

/// Key rows that no query row of the head's group sees, whatever the bias: 1 = hidden.
std::vector<std::uint8_t> hidden_keys(const AttentionProblem& p, const AttentionInputs& inputs,
                                      const Rows& rows, std::int64_t b, std::int64_t g) {
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(p.kv_len), 1);
  const std::int64_t group = p.num_heads / p.num_kv_heads;
  for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
    for (std::int64_t i = 0; i < p.q_len; ++i)
      for (const std::int64_t j : visible_keys(p, inputs, rows, b, h, i))
        hidden[static_cast<std::size_t>(j)] = 0;
  return hidden;
}

/// Puts other values where nobody looks: k and v of hidden keys, and with `nan` the q and dO of
/// rows without a key. Whether there was any such place.
bool disturb(const AttentionProblem& p, bool nan, AttentionInputs& inputs) {
  bool any = false;
  const AttentionInputs given = inputs;
  const auto put = [&](Dense<double>& tensor, std::int64_t b, std::int64_t h, std::int64_t row) {
    for (std::int64_t c = 0; c < tensor.shape[3]; ++c) {
      double& x = tensor.at(b, h, row, c);
      x = nan ? kNan : round_to(p.dtype, x == 0 ? 1 : -x / 2);
    }
    any = true;
  };
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Rows rows = rows_of(p, b);
    for (std::int64_t g = 0; g < p.num_kv_heads; ++g) {
      const std::vector<std::uint8_t> hidden = hidden_keys(p, given, rows, b, g);
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        if (hidden[static_cast<std::size_t>(j)] && rows.real_key(j))
          put(inputs.k, b, g, j), put(inputs.v, b, g, j);
    }
    for (std::int64_t h = 0; nan && h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i)
        if (rows.real_query(i) && visible_keys(p, given, rows, b, h, i).empty())
          put(inputs.q, b, h, i), put(inputs.d_o, b, h, i);
  }
  return any;
}

CaseResult check_hidden(CaseContext& context, const AttentionProblem& problem, bool nan) {
  // An average of v in place of an empty row reads every v.
  const bool averages = problem.empty_output == EmptyOutput::mean_v;
  const AttentionInputs inputs = context.inputs(problem);
  AttentionInputs disturbed = inputs;
  if (averages || problem.layout == Layout::broadcast || !disturb(problem, nan, disturbed))
    return {.verdict = Verdict::not_judged, .detail = "every key is seen by some row"};
  GradientCall base;
  if (auto result = call_gradients(context, problem, inputs, base)) return *result;
  const Observation seen = context.call(problem, disturbed);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  LawJudge judge(problem, nan ? "NaN where nobody looks" : "other values where nobody looks");
  for_each_gradient(problem, [&](Gradient gradient) {
    const std::vector<double>& was = base.values(gradient);
    const std::vector<double>& is = seen.gradients[static_cast<std::size_t>(gradient)].values;
    for (std::size_t flat = 0; flat < was.size(); ++flat) {
      const double allowed = base.allowed(gradient, flat);
      if (std::isfinite(allowed))
        judge.add(output_of(gradient), flat, was[flat], is[flat],
                  context.declaration().deterministic ? 0 : 2 * allowed, true);
    }
  });
  return std::move(judge).finish();
}

CaseResult check_finite(CaseContext& context, const AttentionProblem& problem) {
  return check_hidden(context, problem, false);
}
CaseResult check_nan(CaseContext& context, const AttentionProblem& problem) {
  return check_hidden(context, problem, true);
}

std::optional<std::string> skip_nan(const Declaration& declaration) {
  if (!declaration.masked_nan_safe) return "not promised: masked_nan_safe";
  return skip_without_backward(declaration);
}

ATTEST_REQUIREMENT(grad_no_leak,
                   {
                       .id = "GRAD-NOLEAK",
                       .sentence = "k and v of a key that no row sees change no gradient",
                       .operation = Operation::backward,
                       .skip = skip_without_backward,
                       .adapt = adapt,
                       .check = check_finite,
                       .share = 40,
                   });

ATTEST_REQUIREMENT(
    grad_nan_safe,
    {
        .id = "GRAD-NANSAFE",
        .sentence = "NaN in a key that no row sees, or in q and dO of a row that sees no key, "
                    "changes no gradient",
        .operation = Operation::backward,
        .skip = skip_nan,
        .adapt = adapt,
        .check = check_nan,
        .share = 40,
    });

}  // namespace
}  // namespace attest
