// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x73696e6bu;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::sink) || !declaration.has(Feature::bias)) return std::nullopt;
  if (problem.sink == SinkKind::none)
    problem.sink = chosen(problem, kTag, 3) == 0 ? SinkKind::large : SinkKind::normal;
  if (problem.sink == SinkKind::mixed_inf && !declaration.has(Feature::bias_neg_inf))
    problem.sink = SinkKind::normal;
  problem = law_sized(std::move(problem), declaration);
  drop_positions(problem);
  drop_ranges(problem);
  problem.blocks = false;
  problem = make_legal(std::move(problem), declaration);
  if (problem.sink == SinkKind::none || has_positions(problem) || has_ranges(problem) ||
      problem.blocks)
    return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement with_sink = restate(problem, context.inputs(problem));
  // A bias has the storage type; only a sink that it holds too can be said by it.
  for (double& sink : with_sink.inputs.sink.values) sink = round_to(problem.dtype, sink);

  // One more key: k = 0, so that its score is its bias; v = 0, seen by every row.
  const std::int64_t extra = problem.kv_len;
  Restatement with_key = with_sink;
  std::vector<std::int64_t> keys = counting(problem.kv_len);
  keys.push_back(0);
  AttentionInputs& inputs = with_key.inputs;
  if (!inputs.bias.present) inputs.bias = Dense<double>({1, 1, 1, 1});
  store_axis(inputs.bias, 1, problem.num_heads);
  store_axis(inputs.bias, 3, problem.kv_len);
  store_axis(inputs.mask, 3, problem.kv_len);
  pick_keys(with_key, keys);
  // Axes of extent 1 broadcast, and so were left as they are.
  store_axis(inputs.bias, 3, extra + 1);
  store_axis(inputs.mask, 3, extra + 1);
  for (auto* tensor : {&inputs.k, &inputs.v})
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t g = 0; g < problem.num_kv_heads; ++g)
        for (std::int64_t c = 0; c < tensor->shape[3]; ++c) tensor->at(b, g, extra, c) = 0;
  for (std::int64_t b = 0; b < inputs.bias.shape[0]; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < inputs.bias.shape[2]; ++i)
        inputs.bias.at(b, h, i, extra) = inputs.sink.at(0, h, 0, 0);
  if (inputs.mask.present)
    for (std::int64_t b = 0; b < inputs.mask.shape[0]; ++b)
      for (std::int64_t h = 0; h < inputs.mask.shape[1]; ++h)
        for (std::int64_t i = 0; i < inputs.mask.shape[2]; ++i) inputs.mask.at(b, h, i, extra) = 1;
  inputs.sink = {};

  if (!settle(with_sink, context.declaration()) || !settle(with_key, context.declaration()))
    return not_sayable();
  LawCall base, other;
  if (auto result = further_call(context, base, with_sink, false, base)) return *result;
  if (auto result = further_call(context, base, with_key, false, other)) return *result;
  LawJudge judge(problem, "a key with v = 0 in place of the sink");
  compare_same(base, other, {}, judge);
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    law_sink_key,
    {
        .id = "LAW-SINK-KEY",
        .sentence = "a sink is the same as one more key with v = 0 and the sink as its score",
        .adapt = adapt,
        .check = check,
        .share = 50,
    });

}  // namespace
}  // namespace attest
