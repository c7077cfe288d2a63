// SPDX-License-Identifier: Apache-2.0
#include "harness/unit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <new>

#include "harness/call_kinds.hpp"
#include "harness/data.hpp"
#include "harness/machine_info.hpp"
#include "harness/observe.hpp"
#include "harness/pace.hpp"
#include "reference/audit.hpp"

namespace attest {

CallLimits call_limits(const AttentionProblem& problem) {
  // A scalar kernel on strided data takes 2 to 4 ns a (query, key, channel) triple, and some time
  // to start a head; under a sanitizer 20 times that.
#ifdef ATTEST_SANITIZED
  constexpr double kSecondsPerTriple = 80e-9, kSecondsPerHead = 40e-6, kLeast = 2.0;
#else
  constexpr double kSecondsPerTriple = 4e-9, kSecondsPerHead = 2e-6, kLeast = 0.1;
#endif
  const double heads = static_cast<double>(problem.batch) * static_cast<double>(problem.num_heads);
  const double pairs =
      heads * static_cast<double>(problem.q_len) * static_cast<double>(problem.kv_len);
  const double channels = static_cast<double>(problem.head_dim + problem.v_head_dim + 8);
  CallLimits limits;
  limits.cpu_seconds =
      std::max(kLeast, 50 * (kSecondsPerTriple * pairs * channels + kSecondsPerHead * heads));
  return limits;
}

CaseResult check_case(const Requirement& requirement, CaseContext& context,
                      const AttentionProblem& problem) {
  CaseResult result;
  try {
    context.limits = call_limits(problem);
    result = requirement.check(context, problem);
  } catch (const std::bad_alloc&) {
    result.verdict = Verdict::error;
    result.detail = "the suite ran out of memory";
  } catch (const std::exception& exception) {
    result.verdict = Verdict::error;
    result.detail = exception.what();
  }
  if (requirement.level == Level::advisory && result.verdict == Verdict::fail)
    result.verdict = Verdict::warn;
  return result;
}

void describe_unit(const AttentionProblem& problem, UnitResult& result) {
  result.dtype = problem.dtype;
  result.head_dim = problem.head_dim;
  result.features = feature_bits(problem);
  result.call_kinds = call_kind_bits(problem);
}

namespace {

void add_case(const WorkList& work, std::size_t place, CaseContext& context,
              const AttentionProblem& problem, UnitResult& unit) {
  const CaseResult result = check_case(*work.requirements[place], context, problem);
  CaseOutcome outcome;
  outcome.requirement = static_cast<int>(place);
  outcome.verdict = result.verdict;
  outcome.reason = result.reason;
  outcome.ratio_output = parse_output(result.ratio_output);
  outcome.ratio = result.worst_ratio;
  outcome.elements = result.elements_compared;
  if (result.verdict != Verdict::pass) outcome.detail = result.detail;
  unit.cases.push_back(std::move(outcome));
}

void add_undeclared(std::size_t place, const std::string& why, UnitResult& unit) {
  CaseOutcome outcome;
  outcome.requirement = static_cast<int>(place);
  outcome.verdict = Verdict::unsupported;
  outcome.detail = "not declared: " + why;
  unit.cases.push_back(std::move(outcome));
}

void add_too_large(std::size_t place, UnitResult& unit) {
  CaseOutcome outcome;
  outcome.requirement = static_cast<int>(place);
  outcome.verdict = Verdict::not_judged;
  outcome.detail = "too large for a kernel of this pace";
  unit.cases.push_back(std::move(outcome));
}

void audit_unit(const WorkList& work, const WorkUnit& unit, CaseContext& context,
                const AttentionProblem& problem, Audit& audit) {
  if (work.audit_pairs <= 0 || context.cached_expected() == nullptr) return;
  if (!context.claim_audit(problem)) return;
  // Most problems get half of the mean; one in sixteen gets eight times it, so that long rows are
  // audited too.
  const std::int64_t pairs = unit.index % 16 == 0 ? work.audit_pairs * 8 : work.audit_pairs / 2;
  const Expected& expected = context.expected(problem);
  const std::uint64_t seed =
      mix(work.seed, 0x6175646974u, static_cast<std::uint64_t>(unit.index), 0, 0, 0);
  audit_rows(problem, context.inputs(problem), expected, seed, 4, pairs, audit);
}

}  // namespace

UnitResult check_unit(const WorkList& work, const WorkUnit& unit, CaseContext& context) {
  UnitResult result;
  result.done = true;
  const std::optional<AttentionProblem> problem = problem_of(work, unit);
  if (!problem) return result;
  describe_unit(*problem, result);
  // Only a requirement that adapts its problems may want an undeclared one: it looks for refusals.
  const bool shared = unit.is_shared();
  const auto undeclared =
      shared ? not_declared(work.declaration, *problem) : std::optional<std::string>();
  const bool too_large = triples_of(*problem) > work.most_triples;
  for (const std::size_t place : requirements_of(work, unit, *problem)) {
    if (too_large)
      add_too_large(place, result);
    else if (undeclared)
      add_undeclared(place, *undeclared, result);
    else
      add_case(work, place, context, *problem, result);
  }
  if (shared && !undeclared && !too_large) audit_unit(work, unit, context, *problem, result.audit);
  return result;
}

std::int64_t case_bytes(const AttentionProblem& problem) {
  // The arena, and beside it in double: inputs, and seven arrays of the size of the outputs for
  // what was observed twice and what is expected.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t stored = tensor_bytes(problem);
  const std::int64_t widening =
      7 * static_cast<std::int64_t>(sizeof(double) / size_of(problem.dtype));
  const std::int64_t arena = arena_bytes(problem);
  if (stored > kMost / (widening + 1) || arena > kMost - stored * widening) return kMost;
  return arena + stored * widening;
}

std::optional<std::string> memory_error(const AttentionProblem& problem) {
  const std::int64_t need = case_bytes(problem);
  const std::int64_t have = memory_bytes();
  if (need <= have / 10 * 8) return std::nullopt;
  return fmt::format("needs {} bytes of memory; this machine has {}", need, have);
}

}  // namespace attest
