// SPDX-License-Identifier: Apache-2.0
#include "attest/conformance.hpp"

#include <memory>
#include <stdexcept>

#include "attest/case_line.hpp"
#include "harness/requirement.hpp"
#include "harness/search.hpp"
#include "harness/subject.hpp"
#include "harness/suite.hpp"
#include "harness/unit.hpp"

namespace attest {
namespace {

std::unique_ptr<Subject> open(const attest_plugin* plugin) {
  OpenError error;
  std::unique_ptr<Subject> subject = open_in_process(plugin, error);
  if (!subject) throw std::invalid_argument("attest: " + error.message);
  return subject;
}

/// The declaration with this dtype alone, so that every draw has it.
Declaration only(Declaration declaration, DType dtype) {
  declaration.dtypes = {dtype};
  return declaration;
}

}  // namespace

std::vector<ConformanceCase> conformance_cases(const attest_plugin* plugin) {
  const std::unique_ptr<Subject> subject = open(plugin);
  std::vector<ConformanceCase> cases;
  for (const Requirement& requirement : requirements()) {
    if (skipped(requirement, subject->declaration())) continue;
    for (const DType dtype : subject->declaration().dtypes)
      cases.push_back({requirement.id, std::string(name(dtype))});
  }
  return cases;
}

ConformanceResult run_conformance_case(const attest_plugin* plugin, const ConformanceCase& which,
                                       const ConformanceOptions& options) {
  const std::unique_ptr<Subject> subject = open(plugin);
  const Requirement* requirement = find_requirement(which.requirement);
  const std::optional<DType> dtype = parse_dtype(which.dtype);
  if (!requirement || !dtype)
    throw std::invalid_argument("attest: no case " + which.requirement + " " + which.dtype);
  const Declaration declaration = only(subject->declaration(), *dtype);
  CaseContext context(*subject);
  ConformanceResult result;
  for (std::uint64_t index = 0; index < static_cast<std::uint64_t>(options.problems); ++index) {
    const std::optional<AttentionProblem> usable = requirement->usable(
        requirement->has_own_problems()
            ? drawn_for(*requirement, declaration, options.seed, index)
            : drawn_shared(requirement->operation, declaration, options.seed, index),
        declaration);
    if (!usable) continue;
    const AttentionProblem& problem = *usable;
    const CaseResult first = check_case(*requirement, context, problem);
    if (first.verdict == Verdict::error) throw std::runtime_error("attest: " + first.detail);
    if (first.verdict == Verdict::unsupported || first.verdict == Verdict::not_judged) continue;
    ++result.checked;
    if (!is_failure(first.verdict)) continue;
    const Shrunk minimal = shrink(*requirement, context, problem, first, ShrinkBudget{});
    result.passed = false;
    result.message = requirement->id + " (" + requirement->sentence +
                     "): " + std::string(name(minimal.result.reason)) + ", " +
                     minimal.result.detail + "\n  smallest case: " + print_case(minimal.problem);
    return result;
  }
  return result;
}

}  // namespace attest
