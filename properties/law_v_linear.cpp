// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x766c696eu;
constexpr double kOwnRounding = 0x1p-52;

enum class Way : std::uint8_t {
  factor,   ///< v = -1/2 (-2 v)
  by_key,   ///< every v row in one of two parts, 0 in the other
  by_bits,  ///< v = leading half of its bits + the rest
};

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  return law_sized(std::move(problem), declaration);
}

/// The leading `bits` bits, towards 0.
double leading(double value, int bits) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::trunc(std::ldexp(fraction, bits)), exponent - bits);
}

int half_of_bits(DType dtype) {
  switch (dtype) {
    case DType::f64: return 26;
    case DType::f32: return 12;
    case DType::f16: return 5;
    case DType::bf16: return 4;
  }
  return 4;
}

/// v of the first and of the second further call, all exact in the storage type.
std::vector<Dense<double>> parts_of(const AttentionProblem& problem, const Dense<double>& v,
                                    Way way) {
  std::vector<Dense<double>> parts(way == Way::factor ? 1 : 2, v);
  for (std::size_t n = 0; n < v.values.size(); ++n) {
    const double value = v.values[n];
    if (way == Way::factor) {
      parts[0].values[n] = -2 * value;
      continue;
    }
    double first = leading(value, half_of_bits(problem.dtype));
    if (way == Way::by_key) {
      const auto row = static_cast<std::int64_t>(n) / problem.v_head_dim;
      first = chosen(problem, kTag + 1 + static_cast<std::uint64_t>(row), 2) == 0 ? value : 0;
    }
    parts[0].values[n] = first;
    parts[1].values[n] = value - first;
  }
  return parts;
}

bool exact(DType dtype, const Dense<double>& tensor) {
  for (const double value : tensor.values)
    if (round_to(dtype, value) != value) return false;
  return true;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall whole;
  if (auto result = first_call(context, problem, whole)) return *result;
  const AttentionInputs inputs = context.inputs(problem);
  Way way = static_cast<Way>(chosen(problem, kTag, 3));
  std::vector<Dense<double>> parts = parts_of(problem, inputs.v, way);
  if (way == Way::factor && !exact(problem.dtype, parts[0])) {
    way = Way::by_key;
    parts = parts_of(problem, inputs.v, way);
  }
  std::vector<LawCall> calls(parts.size());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    Restatement part = restate(problem, inputs);
    part.inputs.v = parts[s];
    if (!settle(part, context.declaration())) return not_sayable();
    if (auto result = further_call(context, whole, part, false, calls[s])) return *result;
  }

  LawJudge judge(problem, way == Way::factor ? "undoing a factor of -2 in v"
                                             : "adding up the results of two parts of v");
  const double factor = way == Way::factor ? -0.5 : 1;
  const auto width = static_cast<std::size_t>(problem.v_head_dim);
  for (std::size_t flat = 0; flat < whole.seen.o.size(); ++flat) {
    const std::size_t row = flat / width;
    if (whole.expected.rows[row] != RowKind::ordinary) continue;
    double sum = 0, magnitude = 0, allowed = allowed_of(whole, Output::o, flat);
    bool judged = std::fabs(whole.expected.o.value[flat]) < limits(problem.dtype).max_finite / 2;
    for (const LawCall& call : calls) {
      const double expected = std::fabs(call.expected.o.value[flat]);
      judged &= call.expected.rows[row] == RowKind::ordinary &&
                expected < limits(problem.dtype).max_finite / 2;
      sum += factor * call.seen.o[flat];
      magnitude += expected;
      allowed += std::fabs(factor) * allowed_of(call, Output::o, flat);
    }
    if (judged)
      judge.add(Output::o, flat, whole.seen.o[flat], sum, allowed + kOwnRounding * magnitude,
                whole.telling(row));
  }
  // v has no part in the lse.
  for (const LawCall& call : calls) compare_same(whole, call, {.compares_o = false}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_v_linear,
    {
        .id = "LAW-V-LINEAR",
        .sentence = "o is linear in v: o(a v1 + b v2) = a o(v1) + b o(v2), and lse has none of it",
        .adapt = adapt,
        .check = check,
        .share = 50,
        .of_decode = "CACHE-V-LINEAR",
    });

}  // namespace
}  // namespace attest
