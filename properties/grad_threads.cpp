// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "harness/generate.hpp"
#include "properties/gradient_laws.hpp"

namespace attest {
namespace {

/// A race that is lost once in a few calls shows in one of them.
constexpr int kThreads[] = {2, 3, 8, 8};

std::optional<AttentionProblem> adapt(AttentionProblem p, const Declaration& declaration) {
  give_threads_work(p);
  p.batch = std::clamp<std::int64_t>(p.batch, 1, 2);
  p = to_backward(std::move(p), declaration);
  if (p.operation != Operation::backward) return std::nullopt;
  return p;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  GradientCall base;
  if (auto result = call_gradients(context, problem, context.inputs(problem), base)) return *result;
  const bool exact = context.declaration().thread_invariant;
  LawJudge judge(problem, "running in several threads");
  for (const int threads : kThreads) {
    CallOptions options;
    options.num_threads = threads;
    const Observation seen = context.call(problem, base.inputs, options);
    if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
    for_each_gradient(problem, [&](Gradient gradient) {
      const auto& is = seen.gradients[static_cast<std::size_t>(gradient)];
      for (std::size_t flat = 0; flat < is.values.size(); ++flat) {
        const double was = base.values(gradient)[flat], allowed = base.allowed(gradient, flat);
        judge.add(output_of(gradient), flat, was, is.values[flat],
                  exact && std::isfinite(allowed) ? 0 : 2 * allowed, true);
      }
    });
  }
  return std::move(judge).finish();
}

ATTEST_REQUIREMENT(
    grad_threads,
    {
        .id = "GRAD-THREADS",
        .sentence = "the number of threads changes no gradient: no bit where that is promised",
        .operation = Operation::backward,
        .skip = skip_without_backward,
        .adapt = adapt,
        .check = check,
        .share = 20,
    });

}  // namespace
}  // namespace attest
