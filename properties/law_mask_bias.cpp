// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6d626961u;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::mask) || !declaration.has(Feature::bias_neg_inf))
    return std::nullopt;
  if (problem.mask == MaskKind::none) {
    problem.mask = chosen(problem, kTag, 2) == 0 ? MaskKind::random : MaskKind::dense;
    const std::int64_t axes = chosen(problem, kTag + 1, 16);
    problem.mask_axes = {(axes & 1) == 0, (axes & 2) == 0, (axes & 4) == 0, (axes & 8) == 0};
  }
  problem = law_sized(std::move(problem), declaration);
  if (problem.mask == MaskKind::none) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  const Dense<std::uint8_t>& mask = restated.inputs.mask;
  Dense<double>& bias = restated.inputs.bias;
  if (!bias.present) bias = Dense<double>({1, 1, 1, 1});
  for (int axis = 0; axis < 4; ++axis)
    if (mask.shape[static_cast<std::size_t>(axis)] > 1)
      store_axis(bias, axis, mask.shape[static_cast<std::size_t>(axis)]);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < bias.shape[0]; ++b)
    for (std::int64_t h = 0; h < bias.shape[1]; ++h)
      for (std::int64_t i = 0; i < bias.shape[2]; ++i)
        for (std::int64_t j = 0; j < bias.shape[3]; ++j, ++flat)
          if (!mask.values[mask.broadcast_index(b, h, i, j)])
            bias.values[flat] = -std::numeric_limits<double>::infinity();
  restated.inputs.mask = {};
  return check_same(context, problem, std::move(restated), {}, true,
                    "a bias of -inf in place of the mask");
}

ATTEST_REQUIREMENT(law_mask_bias,
                   {
                       .id = "LAW-MASK-BIAS",
                       .sentence = "a boolean mask is the same as a bias of 0 and -inf",
                       .adapt = adapt,
                       .check = check,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
