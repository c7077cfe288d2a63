// SPDX-License-Identifier: Apache-2.0
#include "harness/pace.hpp"

#include <algorithm>
#include <limits>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/observe.hpp"
#include "harness/unit.hpp"

namespace attest {

double triples_of(const AttentionProblem& problem) {
  return static_cast<double>(problem.batch * problem.num_heads) *
         static_cast<double>(problem.q_len) * static_cast<double>(problem.kv_len) *
         static_cast<double>(problem.head_dim + problem.v_head_dim);
}

double triples_within(Subject& subject, double seconds) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const Declaration& declaration = subject.declaration();
  if (!declaration.forward || declaration.dtypes.empty()) return kUnlimited;
  AttentionProblem problem;
  problem.dtype = declaration.dtypes.front();
  problem.q_len = problem.kv_len = 48;
  problem.head_dim = problem.v_head_dim = 16;
  problem.want_lse = declaration.has(Feature::lse);
  problem = make_legal(problem, declaration);
  const AttentionInputs inputs = make_inputs(problem);
  CallOptions options;
  options.limits = call_limits(problem);
  double fastest = kUnlimited;
  for (int call = 0; call < 2; ++call) {
    const Observation seen = observe(subject, problem, inputs, options);
    if (!seen.ok()) return kUnlimited;
    fastest = std::min(fastest, seen.call.elapsed_seconds);
  }
  return seconds / std::max(fastest, 1e-9) * triples_of(problem);
}

}  // namespace attest
