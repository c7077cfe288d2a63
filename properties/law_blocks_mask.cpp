// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x626d736bu;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::blocks) || !declaration.has(Feature::mask)) return std::nullopt;
  if (!problem.blocks) {
    constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 8, 16};
    problem.blocks = true;
    problem.block_q = kSizes[chosen(problem, kTag, 6)];
    problem.block_k = kSizes[chosen(problem, kTag + 1, 6)];
  }
  problem = law_sized(std::move(problem), declaration);
  if (!problem.blocks) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  const Dense<std::uint8_t>& blocks = restated.inputs.blocks;
  Dense<std::uint8_t>& mask = restated.inputs.mask;
  if (!mask.present) {
    mask = Dense<std::uint8_t>({1, 1, 1, 1});
    mask.values[0] = 1;
  }
  store_axis(mask, 0, std::max(mask.shape[0], blocks.shape[0]));
  store_axis(mask, 1, std::max(mask.shape[1], blocks.shape[1]));
  store_axis(mask, 2, problem.q_len);
  store_axis(mask, 3, problem.kv_len);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < mask.shape[0]; ++b)
    for (std::int64_t h = 0; h < mask.shape[1]; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t j = 0; j < problem.kv_len; ++j, ++flat)
          if (!blocks
                   .values[blocks.broadcast_index(b, h, i / problem.block_q, j / problem.block_k)])
            mask.values[flat] = 0;
  restated.inputs.blocks = {};
  AttentionProblem& p = restated.problem;
  p.blocks = false;
  p.block_axes = {};
  p.block_q = p.block_k = AttentionProblem{}.block_q;
  return check_same(context, problem, std::move(restated), {}, true,
                    "a mask in place of the blocks");
}

ATTEST_REQUIREMENT(
    law_blocks_mask,
    {
        .id = "LAW-BLOCKS-MASK",
        .sentence = "a block bitmap is the same as a boolean mask that repeats its bits",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
