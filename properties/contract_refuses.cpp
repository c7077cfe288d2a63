// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "attest/plugin.h"
#include "harness/data.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7265667573650000u;

/// The same call of another operation.
template <class Add>
void add_operations(const AttentionProblem& problem, const Declaration& declaration, Add add) {
  const std::pair<Operation, bool> served[] = {{Operation::forward, declaration.forward},
                                               {Operation::backward, declaration.backward.served},
                                               {Operation::decode, declaration.cache.served()},
                                               {Operation::rope, declaration.rope.served}};
  for (const auto& [operation, is_served] : served) {
    if (is_served) continue;
    AttentionProblem changed = forward_of(problem);
    changed.operation = operation;
    add(std::move(changed));
  }
  AttentionProblem back = problem;
  back.rope_inverse = true;
  if (problem.operation == Operation::rope && !declaration.rope.inverse) add(std::move(back));
}

/// Other caches than those that the kernel decodes from.
template <class Add>
void add_caches(const AttentionProblem& problem, const Declaration& declaration, Add add) {
  if (problem.operation != Operation::decode) return;
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged}) {
    AttentionProblem changed = problem;
    changed.cache = kind;
    changed.page_size = kind == CacheKind::paged ? 16 : 0;
    if (!declaration.cache.serves(kind)) add(std::move(changed));
  }
  for (std::int64_t size = 1; declaration.cache.paged && size <= 257; ++size) {
    if (contains(declaration.cache.page_sizes, size)) continue;
    AttentionProblem changed = problem;
    changed.cache = CacheKind::paged;
    changed.page_size = size;
    add(std::move(changed));
    break;
  }
  AttentionProblem changed = problem;
  if (changed.rope != RopePairing::none) {
    changed.cache_rotated = !declaration.cache.rotated;
    add(changed);
  }
  changed = problem;
  changed.num_splits = 2;
  add(std::move(changed));
}

/// Ways to leave the declaration: every undeclared feature, dtype, operation and cache, and one
/// undeclared head dim.
std::vector<AttentionProblem> undeclared(const AttentionProblem& problem,
                                         const Declaration& declaration) {
  std::vector<AttentionProblem> out;
  const auto add = [&](AttentionProblem changed) {
    changed = make_legal(changed, everything());
    if (not_declared(declaration, changed)) out.push_back(std::move(changed));
  };
  for (int f = 0; f < kNumFeatures; ++f) {
    const auto feature = static_cast<Feature>(f);
    if (declaration.has(feature)) continue;
    AttentionProblem changed = problem;
    add_feature(changed, feature);
    add(std::move(changed));
  }
  for (const DType dtype : kAllDTypes) {
    if (declaration.has(dtype)) continue;
    AttentionProblem changed = problem;
    changed.dtype = dtype;
    add(std::move(changed));
  }
  for (std::int64_t dim = 1; dim <= 257; ++dim) {
    if (contains(declaration.head_dims, dim)) continue;
    AttentionProblem changed = problem;
    changed.head_dim = dim;
    if (!declaration.v_head_dims) changed.v_head_dim = dim;
    add(std::move(changed));
    break;
  }
  add_operations(problem, declaration, add);
  add_caches(problem, declaration, add);
  return out;
}

std::optional<std::string> skip(const Declaration& declaration) {
  AttentionProblem probe;
  probe.q_len = probe.kv_len = probe.head_dim = probe.v_head_dim = 4;
  if (undeclared(probe, declaration).empty()) return "everything is declared";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (problem.q_len == 0 || problem.kv_len == 0 || problem.batch == 0) return std::nullopt;
  if (not_declared(declaration, problem)) return problem;
  const std::vector<AttentionProblem> ways = undeclared(problem, declaration);
  if (ways.empty()) return std::nullopt;
  return ways[mix(problem.seed, kTag, 0, 0, 0, 0) % ways.size()];
}

/// What the kernel answered where it should have refused, against the oracle.
CaseResult judge_answer(CaseContext& context, const AttentionProblem& problem,
                        const Observation& seen) {
  if (problem.operation != Operation::backward)
    return judge_outputs(context, problem, context.expected(problem), seen);
  CaseResult result;
  for (std::size_t n = 0; n < kNumGradients && !is_failure(result.verdict); ++n)
    if (wants_gradient(problem, static_cast<Gradient>(n)))
      result =
          judge_gradient(problem, context.inputs(problem), context.expected(problem),
                         static_cast<Gradient>(n), seen.gradients[n].values, is_generic(problem));
  return result;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const std::string what = not_declared(context.declaration(), problem).value_or("nothing");
  if (problem.operation == Operation::backward) {
    // A backward call needs a forward one before it, of which other requirements speak.
    if (!context.call(forward_of(problem), context.inputs(problem)).ok())
      return {.verdict = Verdict::not_judged, .detail = "the forward call before it fails"};
  }
  const Observation& seen = context.first(problem);
  if (!seen.call.accident && seen.call.status >= ATTEST_UNSUPPORTED &&
      seen.call.status <= ATTEST_FAILED)
    return {};
  if (auto result = judge_call(seen, context.declaration(), problem)) {
    result->detail += " (on " + what + ", which is not declared and should be refused)";
    return *result;
  }
  CaseResult result = judge_answer(context, problem, seen);
  result.ratio_output.clear();
  result.reason = Reason::wrong_accept;
  if (is_failure(result.verdict)) {
    result.detail = "accepts " + what + ", which it does not declare, and gives a wrong answer";
  } else {
    // Served, and rightly: then the declaration could say so, but nobody is misled.
    result.verdict = Verdict::warn;
    result.detail = "serves " + what + " without declaring it";
  }
  return result;
}

ATTEST_REQUIREMENT(contract_refuses, {
                                         .id = "CONTRACT-REFUSES",
                                         .sentence = "what is not declared is refused, not ignored",
                                         .any_operation = true,
                                         .skip = skip,
                                         .adapt = adapt,
                                         .check = check,
                                         .share = 120,
                                         .of_decode = "CACHE-REFUSES",
                                         .of_rope = "ROPE-REFUSES",
                                     });

}  // namespace
}  // namespace attest
