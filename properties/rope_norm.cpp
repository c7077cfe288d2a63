// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "properties/rope_laws.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  RopeRun run;
  if (auto result = run_rope(context, problem, run)) return *result;
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  const bool interleaved = problem.rope == RopePairing::interleaved;
  // Both channels may be off by their tolerances, and the two roots below by a rounding each.
  const auto root = [](long double x, long double y) { return std::sqrt(x * x + y * y); };
  RopeLaw law(problem);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        if (!run.telling(b, h, i)) continue;
        for (std::int64_t t = 0; t < pairs; ++t) {
          const std::size_t first = run.flat(b, h, i, interleaved ? 2 * t : t),
                            second = run.flat(b, h, i, interleaved ? 2 * t + 1 : t + pairs);
          const long double norm = root(run.inputs.q.values[first], run.inputs.q.values[second]);
          law.add(first, norm, root(run.y(first), run.y(second)),
                  root(run.allowed(first), run.allowed(second)) + 0x1p-60L * norm, [&] {
                    return fmt::format("the norm of {} and its partner in pair {}",
                                       element_name(problem, Output::o, first), t);
                  });
        }
      }
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(rope_norm, {
                                  .id = "ROPE-NORM",
                                  .sentence = "turning keeps the norm of every pair of channels",
                                  .operation = Operation::rope,
                                  .check = check,
                              });

}  // namespace
}  // namespace attest
