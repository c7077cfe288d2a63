// SPDX-License-Identifier: Apache-2.0
// A requirement: one sentence a kernel must satisfy, and the plain function that checks it on one
// problem.
//
// Adding one is adding one file to properties/: write the check, and under it
//   ATTEST_REQUIREMENT(mask_no_leak, {.id = "MASK-NOLEAK", .sentence = "...", .check = check});
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "harness/judge.hpp"
#include "harness/observe.hpp"
#include "harness/shared_answers.hpp"
#include "reference/expected.hpp"

namespace attest {

/// What a check may use. Inputs, the oracle's answer and the two standard calls of a problem are
/// computed once and shared by all requirements that look at the same problem.
class CaseContext {
 public:
  explicit CaseContext(Subject& subject, SharedAnswers* shared = nullptr)
      : subject_(subject), shared_(shared) {}

  Subject& subject() { return subject_; }
  const Declaration& declaration() const { return subject_.declaration(); }

  const AttentionInputs& inputs(const AttentionProblem& problem);
  const Expected& expected(const AttentionProblem& problem);
  /// Of other values than the problem's own; never cached here.
  std::shared_ptr<const Expected> expected(const AttentionProblem& problem,
                                           const AttentionInputs& inputs) const;
  /// The standard pair: first (high, nan), second (low, finite).
  const Observation& first(const AttentionProblem& problem);
  const Observation& second(const AttentionProblem& problem);
  /// Any other call; never cached.
  Observation call(const AttentionProblem& problem, const AttentionInputs& inputs,
                   const CallOptions& options = {});

  CallLimits limits;  ///< for every call that this context makes
  /// The host has died of SIGKILL in a call of this context.
  bool host_killed() const { return host_killed_; }
  /// Set and true: the kernel is known to end its process by SIGKILL, so that dying of it is a
  /// crash.
  const std::atomic<bool>* kills_itself = nullptr;
  std::int64_t calls = 0;  ///< made so far
  /// The oracle's answer of the problem last looked at, where a check asked for it; else nullptr.
  /// For the audit.
  const Expected* cached_expected() const { return expected_.get(); }
  /// False where the same answer has been audited for another kernel.
  bool claim_audit(const AttentionProblem& problem);

 private:
  void focus(const AttentionProblem& problem);
  Subject& subject_;
  SharedAnswers* shared_;  ///< with kernels that run beside this one; nullptr: there are none
  std::optional<AttentionProblem> problem_;
  std::shared_ptr<const AttentionInputs> inputs_;
  std::shared_ptr<const Expected> expected_;
  std::optional<Observation> first_, second_;
  bool host_killed_ = false;
};

enum class Level : std::uint8_t { required, advisory };

struct Requirement {
  std::string id;        ///< "MASK-NOLEAK"
  std::string sentence;  ///< what is owed, in plain words
  Level level = Level::required;
  /// What it looks at; the shared problems of either are drawn apart.
  Operation operation = Operation::forward;
  /// Its problems may be of other operations too: it looks for refusals of them.
  bool any_operation = false;
  /// Why nothing can be checked on a kernel with this declaration ("not promised: deterministic");
  /// nullptr: always.
  std::optional<std::string> (*skip)(const Declaration&) = nullptr;
  /// The problem of an index, for requirements that walk a grid instead of drawing.
  AttentionProblem (*draw)(const Declaration&, std::uint64_t seed, std::uint64_t index) = nullptr;
  /// Turns a drawn problem into one that this requirement can use, or nullopt to pass it by.
  /// nullptr: as drawn. Must be idempotent: shrinking applies it to its own results.
  std::optional<AttentionProblem> (*adapt)(AttentionProblem, const Declaration&) = nullptr;
  /// Whether this requirement has anything to say about a problem; where not, there is no case.
  /// nullptr: always.
  bool (*applies)(const AttentionProblem&, const Declaration&) = nullptr;
  CaseResult (*check)(CaseContext&, const AttentionProblem&) = nullptr;
  /// Cases per 1000 shared problems, for requirements with problems of their own.
  int share = 250;
  /// Also registered under this id as a requirement of decode calls, "" = not: what it says of o
  /// and lse then speaks of them.
  std::string of_decode = {};
  /// The same of calls of the rotary embedding alone: o is y, and there is no lse.
  std::string of_rope = {};
  /// Set in those: their draw() is of problems of forward calls.
  bool is_twin = false;

  /// Else it looks at the shared problems.
  bool has_own_problems() const { return draw || adapt; }
  /// The problem as this requirement uses it; nullopt where it has nothing to say about it.
  std::optional<AttentionProblem> usable(AttentionProblem problem, const Declaration&) const;
};

/// Why nothing can be checked on a kernel with this declaration: it lacks the operation, or
/// Requirement::skip says so.
std::optional<std::string> skipped(const Requirement& requirement, const Declaration& declaration);

/// Sorted by id, whatever the link order.
const std::vector<Requirement>& requirements();
const Requirement* find_requirement(const std::string& id);
bool register_requirement(Requirement requirement);

#define ATTEST_REQUIREMENT(identifier, ...)                    \
  [[maybe_unused]] static const bool identifier##_registered = \
      ::attest::register_requirement(::attest::Requirement __VA_ARGS__)

/// The part every check starts with: accident, refusal, junk status. nullopt: the call came back
/// with ATTEST_OK.
std::optional<CaseResult> judge_call(const Observation& observation, const Declaration& declaration,
                                     const AttentionProblem& problem);

}  // namespace attest
