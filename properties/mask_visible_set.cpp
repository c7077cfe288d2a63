// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "attest/case_line.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

/// The smallest declared value-head dim that is at least `wanted`, up to 256; 0: none.
std::int64_t value_dim_at_least(const AttentionProblem& problem, const Declaration& declaration,
                                std::int64_t wanted) {
  for (std::int64_t dim = std::max<std::int64_t>(wanted, 1); dim <= 256; ++dim) {
    if (declaration.v_head_dims ? contains(*declaration.v_head_dims, dim) : dim == problem.head_dim)
      return dim;
  }
  return 0;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem.v_data = Family::identity_v;
  problem.literal = {};
  if (problem.data == Family::list || problem.data == Family::huge) problem.data = Family::gaussian;
  const std::int64_t keys = std::min<std::int64_t>(problem.kv_len, 96);
  std::int64_t dim = value_dim_at_least(problem, declaration, keys);
  if (dim == 0) {
    dim = problem.head_dim;
    if (declaration.v_head_dims && !contains(*declaration.v_head_dims, dim)) return std::nullopt;
  }
  problem.v_head_dim = dim;
  problem.kv_len = std::min(keys, dim);
  problem = make_legal(problem, declaration);
  if (problem.v_data != Family::identity_v || problem.kv_len > problem.v_head_dim)
    return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const AttentionInputs& inputs = context.inputs(problem);
  const Expected& expected = context.expected(problem);
  const std::vector<std::uint8_t> visible = visible_everywhere(problem, inputs);
  const auto width = static_cast<std::size_t>(problem.v_head_dim);
  const auto keys = static_cast<std::size_t>(problem.kv_len);

  CaseResult result;
  std::optional<CaseResult> failure;
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    if (expected.rows[row] != RowKind::ordinary) continue;
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t flat = row * width + j;
      const double weight = seen.o[flat];
      const bool kept = !inputs.keep.present || inputs.keep.values[row * keys + j];
      const bool shows = visible[row * keys + j] && kept;
      // A visible weight below its own tolerance may well be rounded to 0.
      if (shows && !(expected.o.value[flat] > 2 * expected.o.t_mixed[flat])) continue;
      ++result.elements_compared;
      if (shows == (weight != 0)) continue;
      ++result.elements_failed;
      if (!failure)
        failure = element_failure(
            problem, Output::o, flat, expected.o.value[flat], weight, Reason::wrong_value,
            shows ? "key " + std::to_string(j) + " is visible but has no weight"
                  : "key " + std::to_string(j) + " is invisible but has weight " +
                        print_number(weight));
    }
  }
  if (!failure) return result;
  failure->elements_compared = result.elements_compared;
  failure->elements_failed = result.elements_failed;
  return *failure;
}

ATTEST_REQUIREMENT(
    mask_visible_set,
    {
        .id = "MASK-VISIBLE",
        .sentence =
            "with V = identity the output is the weight matrix, and its non-zeros are exactly "
            "the visible keys",
        .adapt = adapt,
        .check = check,
        .share = 400,
        .of_decode = "CACHE-VISIBLE",
    });

}  // namespace
}  // namespace attest
