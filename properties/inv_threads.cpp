// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

AttentionProblem draw_parallel(const Declaration& declaration, std::uint64_t seed,
                               std::uint64_t index) {
  AttentionProblem p = draw(declaration, seed, "INV-THREADS", index);
  if (p.batch * p.num_heads < 4 && p.cu_seqlens_q.empty()) p.batch = 2;
  give_threads_work(p);
  return make_legal(p, declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& one = context.first(problem);
  const CaseResult alone = judge_outputs(context, problem, context.expected(problem), one);
  CaseResult result;
  result.elements_compared = alone.elements_compared;
  // The largest number again and again: a race is a matter of luck.
  for (const int threads : {2, 3, 8, 8, 8}) {
    const Observation seen =
        context.call(problem, context.inputs(problem), {.num_threads = threads});
    const std::string what = "with " + std::to_string(threads) + " threads instead of one";
    const CaseResult judged = judge_outputs(context, problem, context.expected(problem), seen);
    if (judged.verdict == Verdict::unsupported || judged.verdict == Verdict::error) return judged;
    if (is_failure(judged.verdict))
      return is_failure(alone.verdict) ? wrong_anyway() : broken_by(judged, what);
    if (!context.declaration().thread_invariant || !one.ok()) continue;
    CaseResult changed =
        differing_bits(problem, one, seen, {}, Reason::law_broken,
                       "running " + what + ", though thread_invariant is promised,");
    if (is_failure(changed.verdict)) return changed;
  }
  return is_failure(alone.verdict) ? wrong_anyway() : result;
}

ATTEST_REQUIREMENT(inv_threads,
                   {
                       .id = "INV-THREADS",
                       .sentence = "1, 2, 3 and 8 threads give the same values, and the same bits "
                                   "where that is promised",
                       .draw = draw_parallel,
                       .check = check,
                       .share = 20,
                       .of_decode = "CACHE-THREADS",
                       .of_rope = "ROPE-THREADS",
                   });

}  // namespace
}  // namespace attest
