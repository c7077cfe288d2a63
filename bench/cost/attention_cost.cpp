// SPDX-License-Identifier: Apache-2.0
#include "bench/cost/attention_cost.hpp"

#include <algorithm>

namespace attest {

namespace {

std::vector<AttentionCostModel>& registry() {
  static std::vector<AttentionCostModel> all;
  return all;
}

/// A decode call reads the rows that its sequences have in the cache, and writes the new ones
/// there.
double decode_bytes(const AttentionProblem& problem) {
  const auto width = static_cast<double>(problem.head_dim + problem.v_head_dim);
  double rows = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    rows += static_cast<double>(problem.num_heads * new_rows(problem, b) +
                                problem.num_kv_heads *
                                    (cached_rows(problem, b) + 2 * new_rows(problem, b)));
  return rows * width * static_cast<double>(size_of(problem.dtype));
}

}  // namespace

const std::vector<AttentionCostModel>& attention_cost_models() { return registry(); }

const AttentionCostModel* find_attention_cost_model(std::string_view name) {
  for (const AttentionCostModel& model : registry())
    if (model.name == name) return &model;
  return nullptr;
}

bool register_attention_cost(AttentionCostModel model) {
  auto& all = registry();
  const auto place =
      std::lower_bound(all.begin(), all.end(), model,
                       [](const AttentionCostModel& left, const AttentionCostModel& right) {
                         return left.name < right.name;
                       });
  all.insert(place, std::move(model));
  return true;
}

double compulsory_bytes(const AttentionProblem& problem) {
  if (problem.operation == Operation::decode) return decode_bytes(problem);
  return static_cast<double>(tensor_bytes(problem));
}

double compute_bytes(const AttentionProblem& problem) {
  return problem.dtype == DType::f64 ? 8 : 4;
}

double heads_per_kv_head(const AttentionProblem& problem) {
  const std::int64_t share = problem.num_heads / problem.num_kv_heads;
  return static_cast<double>(share);
}

double rotation_flops(const AttentionProblem& problem, double per_pair) {
  if (problem.rope == RopePairing::none) return 0;
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  return per_pair * static_cast<double>(pairs);
}

Result<AttentionCost> attention_cost(const AttentionCostModel& model,
                                     const AttentionProblem& problem) {
  const Result<PairCounts> counts = count_pairs(problem, model.tile);
  if (!counts) return Error{counts.error()};
  const AttentionProblem whole =
      problem.operation == Operation::decode ? forward_of(problem) : problem;
  AttentionCost cost = problem.operation == Operation::backward ? model.backward(problem, *counts)
                                                                : model.forward(whole, *counts);
  // What a way moves beyond the tensors is its own matter, whatever the call.
  if (problem.operation == Operation::decode)
    cost.bytes += compulsory_bytes(problem) - compulsory_bytes(whole);
  return cost;
}

}  // namespace attest
