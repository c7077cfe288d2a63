// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/unit.hpp"
#include "properties/judge_outputs.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

/// Ten calls of it or of its like are made, and five oracles.
constexpr std::int64_t kMostTriples = 100'000;

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration&) {
  if (triples(problem) > kMostTriples) return std::nullopt;
  return problem;
}

/// Sizes and layout alone.
AttentionProblem plain(const AttentionProblem& like) {
  AttentionProblem problem = sizes_alone(like);
  problem.layout = like.layout;
  problem.seed = like.seed + 1;
  return problem;
}

AttentionProblem larger(const AttentionProblem& like, const Declaration& declaration) {
  AttentionProblem problem = plain(like);
  problem.batch += 1;
  problem.num_heads += problem.num_heads / problem.num_kv_heads;
  problem.num_kv_heads += 1;
  problem.q_len += 3;
  problem.kv_len += 17;
  problem.head_dim += 8;
  problem.v_head_dim += 8;
  return make_legal(problem, declaration);
}

AttentionProblem smaller(const AttentionProblem& like, const Declaration& declaration) {
  AttentionProblem problem = plain(like);
  problem.batch = problem.num_heads = problem.num_kv_heads = 1;
  for (auto* extent : {&problem.q_len, &problem.kv_len, &problem.head_dim, &problem.v_head_dim})
    *extent = std::max<std::int64_t>(*extent / 2, 1);
  return make_legal(problem, declaration);
}

/// The same sizes, asked for something else: causal where it was not, nothing else where it was.
AttentionProblem otherwise(const AttentionProblem& like, const Declaration& declaration) {
  AttentionProblem problem = plain(like);
  if (like.base == Base::full) problem.base = Base::causal;
  return make_legal(problem, declaration);
}

/// The same problem with other values; the listed ones are negated in v.
struct Other {
  AttentionProblem problem;
  AttentionInputs inputs;
};

Other other_values(const AttentionProblem& problem, const AttentionInputs& inputs) {
  Other other{problem, {}};
  if (problem.data == Family::list || problem.v_data == Family::list) {
    other.inputs = inputs;
    for (double& value : other.inputs.v.values) value = -value;
  } else {
    ++other.problem.seed;
    other.inputs = make_inputs(other.problem);
  }
  return other;
}

/// The calls of one check, in their order, and what became of those that must agree.
class Calls {
 public:
  Calls(CaseContext& context, const AttentionProblem& problem)
      : context_(context),
        problem_(problem),
        inputs_(context.inputs(problem)),
        expected_(context.expected(problem)) {}

  /// The problem itself once more.
  void again(const std::string& after) {
    if (stopped_) return;
    const Observation seen = context_.call(problem_, inputs_);
    CaseResult judged = judge_outputs(context_, problem_, expected_, seen);
    compared_ += judged.elements_compared;
    const bool failed = is_failure(judged.verdict);
    if (judged.verdict == Verdict::unsupported || judged.verdict == Verdict::error) {
      stopped_ = judged;
    } else if (failed) {
      if (!bad_) bad_ = broken_by(judged, "the call " + after);
      if (!as_it_is_) as_it_is_ = judged;
    } else {
      good_ = true;
      if (!first_)
        first_ = seen;
      else if (context_.declaration().deterministic && !is_failure(changed_.verdict))
        changed_ = differing_bits(problem_, *first_, seen, {}, Reason::law_broken,
                                  "the same call " + after);
    }
  }

  /// A call in between. Where it is wrong for good, that is others' to report.
  void between(const AttentionProblem& problem) {
    if (stopped_) return;
    const CallLimits limits = context_.limits;
    context_.limits = call_limits(problem);
    const AttentionInputs inputs = make_inputs(problem);
    const auto expected = context_.expected(problem, inputs);
    const auto judged = [&] {
      return judge_outputs(context_, problem, *expected, context_.call(problem, inputs));
    };
    const CaseResult result = judged();
    if (result.verdict == Verdict::fail && !other_ && judged().verdict == Verdict::pass)
      other_ = broken_by(result, "a call of another kind among these");
    context_.limits = limits;
  }

  /// The same call with other values where the old ones were.
  void with_other_values() {
    if (stopped_) return;
    const Other other = other_values(problem_, inputs_);
    const auto expected = context_.expected(other.problem, other.inputs);
    const Observation seen = context_.call(other.problem, other.inputs);
    const CaseResult judged = judge_outputs(context_, other.problem, *expected, seen);
    if (is_failure(judged.verdict))
      other_ = broken_by(judged, "other values at the same addresses");
  }

  CaseResult finish() const {
    if (stopped_) return *stopped_;
    // Wrong whatever came before: it may still be right as the first call of a process.
    if (bad_ && !good_) return *as_it_is_;
    if (bad_) return *bad_;
    if (other_) return *other_;
    if (is_failure(changed_.verdict)) return changed_;
    CaseResult result;
    result.elements_compared = compared_;
    return result;
  }

 private:
  CaseContext& context_;
  const AttentionProblem& problem_;
  const AttentionInputs inputs_;
  const Expected expected_;
  std::optional<Observation> first_;
  std::optional<CaseResult> stopped_, bad_, as_it_is_, other_;
  CaseResult changed_;  ///< of the bits of the last of those that must agree
  bool good_ = false;
  std::int64_t compared_ = 0;
};

/// A kernel that keeps something from call to call is seen here in any process: all that matters is
/// called within the check, at least six times the same, with every kind of other call in between.
CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Declaration& declaration = context.declaration();
  Calls calls(context, problem);
  calls.again("before others");
  calls.again("right after the same");
  calls.with_other_values();
  calls.again("after one with other values");
  calls.between(larger(problem, declaration));
  calls.again("after a larger one");
  calls.between(smaller(problem, declaration));
  calls.again("after a smaller one");
  calls.between(otherwise(problem, declaration));
  calls.again("after one that asks for something else");
  return calls.finish();
}

ATTEST_REQUIREMENT(
    inv_order, {
                   .id = "INV-ORDER",
                   .sentence = "what was called before does not change a call: nothing is kept, "
                               "and memory left over from it is not read",
                   .adapt = adapt,
                   .check = check,
                   .share = 80,
                   .of_decode = "CACHE-ORDER",
               });

}  // namespace
}  // namespace attest
