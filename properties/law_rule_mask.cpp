// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/generate.hpp"
#include "properties/law_support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x726d736bu;

bool has_rule(const AttentionProblem& problem) {
  return problem.base != Base::full || problem.window_left >= 0 || problem.window_right >= 0;
}

/// One of the declared rules, each as often as the others: drawn problems seldom have the rare
/// ones.
void add_rule(AttentionProblem& problem, const Declaration& declaration) {
  enum Rule { causal, prefix, left, right, both, global };
  std::vector<Rule> rules;
  const bool has_left = declaration.has(Feature::window_left);
  const bool has_right = declaration.has(Feature::window_right);
  if (declaration.has(Feature::causal)) rules.push_back(causal);
  if (declaration.has(Feature::prefix)) rules.push_back(prefix);
  if (has_left) rules.push_back(left);
  if (has_right) rules.push_back(right);
  if (has_left && has_right) rules.push_back(both);
  if (has_left && declaration.has(Feature::global_tokens)) rules.push_back(global);
  if (rules.empty()) return;
  const Rule rule = rules[static_cast<std::size_t>(chosen(problem, kTag, std::ssize(rules)))];
  const std::int64_t width = chosen(problem, kTag + 1, problem.kv_len / 2 + 1);
  if (rule == causal) problem.base = Base::causal;
  if (rule == prefix) {
    problem.base = Base::prefix;
    for (std::int64_t s = 0; s < num_sequences(problem); ++s)
      problem.prefix_len.push_back(
          chosen(problem, kTag + 10 + static_cast<std::uint64_t>(s), problem.kv_len + 1));
  }
  if (rule == left || rule == both || rule == global) problem.window_left = width;
  if (rule == right || rule == both)
    problem.window_right = chosen(problem, kTag + 2, problem.kv_len / 2 + 1);
  if (rule == global) problem.global_tokens = 1 + chosen(problem, kTag + 3, 3);
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (!declaration.has(Feature::mask) || !declaration.base_full) return std::nullopt;
  if (!has_rule(problem)) add_rule(problem, declaration);
  problem = law_sized(std::move(problem), declaration);
  if (!has_rule(problem)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  Restatement restated = restate(problem, context.inputs(problem));
  Dense<std::uint8_t>& mask = restated.inputs.mask;
  if (!mask.present) {
    mask = Dense<std::uint8_t>({1, 1, 1, 1});
    mask.values[0] = 1;
  }
  // Positions may differ from sequence to sequence.
  store_axis(mask, 0, problem.batch);
  store_axis(mask, 2, problem.q_len);
  store_axis(mask, 3, problem.kv_len);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < mask.shape[1]; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t j = 0; j < problem.kv_len; ++j, ++flat) {
          if (!range_visible(rows, i, j)) continue;
          const std::int64_t query = qpos(rows.of_query(i), i), key = kpos(rows.of_key(j), j);
          if (!base_visible(problem, rows.of_query(i), query, key) ||
              !band_visible(problem, query, key))
            mask.values[flat] = 0;
        }
  }
  restated.problem.base = Base::full;
  restated.problem.prefix_len.clear();
  restated.problem.window_left = restated.problem.window_right = -1;
  restated.problem.global_tokens = 0;
  return check_same(context, problem, std::move(restated), {}, true,
                    "a mask in place of base and window");
}

ATTEST_REQUIREMENT(
    law_rule_mask,
    {
        .id = "LAW-RULE-MASK",
        .sentence =
            "base, prefix and window are the same as a boolean mask that shows the same keys",
        .adapt = adapt,
        .check = check,
        .share = 60,
        .of_decode = "CACHE-RULE-MASK",
    });

}  // namespace
}  // namespace attest
