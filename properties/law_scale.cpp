// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7363616cu;

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::isfinite(value) && std::fabs(std::frexp(value, &exponent)) == 0.5;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem = law_sized(std::move(problem), declaration);
  if (declaration.has(Feature::scale) && !is_power_of_two(effective_scale(problem))) {
    constexpr double kScales[] = {0.5, 0.25, 2, 0.125, 0.0625, 4};
    problem.scale = kScales[chosen(problem, kTag, 6)];
  }
  return problem;
}

/// Multiplies by a power of two. Whether all is exact in the storage type.
bool multiply(DType dtype, Dense<double>& tensor, double factor) {
  for (double& value : tensor.values) {
    value *= factor;
    if (round_to(dtype, value) != value) return false;
  }
  return true;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  AttentionInputs& inputs = restated.inputs;
  const double scale = effective_scale(problem);
  const bool on_q = chosen(problem, kTag + 1, 2) == 0;
  const char* what = "";
  bool exact = true;
  if (context.declaration().has(Feature::scale) && is_power_of_two(scale) && scale != 1) {
    exact = multiply(problem.dtype, on_q ? inputs.q : inputs.k, scale);
    restated.problem.scale = 1;
    what = on_q ? "scaling q instead of the scores" : "scaling k instead of the scores";
  } else {
    exact = multiply(problem.dtype, inputs.q, on_q ? 2 : 0.5) &&
            multiply(problem.dtype, inputs.k, on_q ? 0.5 : 2);
    what = "taking a factor of 2 from q or k to the other";
  }
  if (!exact) return not_sayable();
  return check_same(context, problem, std::move(restated), {}, true, what);
}

ATTEST_REQUIREMENT(
    law_scale,
    {
        .id = "LAW-SCALE",
        .sentence =
            "a scale that is a power of two is the same as scaling q or k; a factor of 2 may move "
            "between q and k",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
