// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x62726f61u;

/// Some axis of the tensor is stored once for several entries.
bool broadcasts(const AttentionProblem& problem, const Axes& axes) {
  return (!axes.b && problem.batch > 1) || (!axes.h && problem.num_heads > 1) ||
         (!axes.q && problem.q_len > 1) || (!axes.k && problem.kv_len > 1);
}

bool has_broadcast(const AttentionProblem& problem) {
  return (problem.mask != MaskKind::none && broadcasts(problem, problem.mask_axes)) ||
         (problem.bias != BiasKind::none && broadcasts(problem, problem.bias_axes)) ||
         (problem.blocks && broadcasts(problem, problem.block_axes)) ||
         (problem.layout == Layout::broadcast && problem.batch > 1);
}

Axes some_axes(const AttentionProblem& problem, std::uint64_t tag) {
  const std::int64_t bits = chosen(problem, tag, 15);  // never all four
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!has_broadcast(problem)) {
    if (declaration.has(Feature::mask) && chosen(problem, kTag, 2) == 0) {
      problem.mask = MaskKind::random;
      problem.mask_axes = some_axes(problem, kTag + 1);
    } else if (declaration.has(Feature::bias)) {
      problem.bias = BiasKind::normal;
      problem.bias_axes = some_axes(problem, kTag + 2);
    } else if (declaration.has(Feature::mask)) {
      problem.mask = MaskKind::random;
      problem.mask_axes = some_axes(problem, kTag + 1);
    }
  }
  const bool shares = problem.layout == Layout::broadcast && problem.batch > 1 &&
                      declaration.has(Feature::layout_broadcast);
  problem = law_sized(std::move(problem), declaration);
  if (shares) {
    problem.layout = Layout::broadcast;
    problem = make_legal(std::move(problem), declaration);
  }
  if (!has_broadcast(problem)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  AttentionInputs& inputs = restated.inputs;
  const std::int64_t extents[] = {problem.batch, problem.num_heads, problem.q_len, problem.kv_len};
  for (int axis = 0; axis < 4; ++axis) {
    store_axis(inputs.mask, axis, extents[axis]);
    store_axis(inputs.bias, axis, extents[axis]);
    if (axis < 2) store_axis(inputs.blocks, axis, extents[axis]);
  }
  if (problem.layout == Layout::broadcast) {
    const bool blhd = context.declaration().has(Feature::layout_blhd);
    restated.problem.layout = blhd ? Layout::blhd : Layout::bhld;
  }
  return check_same(context, problem, std::move(restated), {}, true,
                    "storing every axis that broadcasts");
}

ATTEST_REQUIREMENT(
    law_broadcast,
    {
        .id = "LAW-BROADCAST",
        .sentence =
            "an axis of mask, bias or blocks that broadcasts, and k and v shared by the batch, are "
            "the same as stored in full",
        .adapt = adapt,
        .check = check,
        .share = 70,
    });

}  // namespace
}  // namespace attest
