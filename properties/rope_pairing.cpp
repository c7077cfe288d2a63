// SPDX-License-Identifier: Apache-2.0
#include "properties/rope_laws.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (declaration.has(Feature::rope_half) && declaration.has(Feature::rope_interleaved))
    return std::nullopt;
  return "not declared: both pairings";
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  return rope_sized(std::move(problem), declaration);
}

std::size_t same_row(const RopeRun& other, std::int64_t b, std::int64_t h, std::int64_t i) {
  return row_index(other.problem, b, h, i);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  RopeRun base, other;
  if (auto result = run_rope(context, problem, base)) return *result;
  // Channel c of the case is channel_of[c] of the other call: pair t lies in t and t + R/2, or in
  // 2t and 2t + 1.
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  const bool from_half = problem.rope == RopePairing::half;
  std::vector<std::int64_t> channel_of;
  for (std::int64_t c = 0; c < problem.head_dim; ++c) {
    if (c >= 2 * pairs)
      channel_of.push_back(c);
    else
      channel_of.push_back(from_half ? 2 * (c % pairs) + c / pairs : c / 2 + c % 2 * pairs);
  }
  Dense<double> x = base.inputs.q;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t c = 0; c < problem.head_dim; ++c)
          x.at(b, h, i, channel_of[static_cast<std::size_t>(c)]) = base.inputs.q.at(b, h, i, c);
  AttentionProblem swapped = problem;
  swapped.rope = from_half ? RopePairing::interleaved : RopePairing::half;
  if (auto result = run_rope(context, swapped, std::move(x), other)) return *result;
  RopeLaw law(problem);
  compare_turned(base, other, {same_row, channel_of, 0},
                 ", with the channels in the order of the other pairing,", law);
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(rope_pairing,
                   {
                       .id = "ROPE-PAIRING",
                       .sentence = "pairs of halves are pairs of neighbours with the channels put "
                                   "in that order",
                       .operation = Operation::rope,
                       .skip = skip,
                       .adapt = adapt,
                       .check = check,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
