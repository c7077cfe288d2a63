// SPDX-License-Identifier: Apache-2.0
#include "harness/requirement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attest/names.hpp"
#include "attest/plugin.h"
#include "harness/data.hpp"

namespace attest {

namespace {

std::vector<Requirement>& registry() {
  static std::vector<Requirement> all;
  return all;
}

}  // namespace

std::optional<AttentionProblem> Requirement::usable(AttentionProblem problem,
                                                    const Declaration& declaration) const {
  if (operation == Operation::forward && problem.operation != operation && !any_operation)
    return std::nullopt;
  std::optional<AttentionProblem> used =
      adapt ? adapt(std::move(problem), declaration) : std::move(problem);
  if (used && used->operation != operation && !any_operation) return std::nullopt;
  if (used && applies && !applies(*used, declaration)) return std::nullopt;
  return used;
}

std::optional<std::string> skipped(const Requirement& requirement, const Declaration& declaration) {
  const auto served = [&] {
    switch (requirement.operation) {
      case Operation::forward: return declaration.forward;
      case Operation::backward: return declaration.backward.served;
      case Operation::decode: return declaration.cache.served();
      case Operation::rope: return declaration.rope.served;
    }
    return true;
  };
  if (!served()) return fmt::format("not declared: {}", enum_name(requirement.operation));
  return requirement.skip ? requirement.skip(declaration) : std::nullopt;
}

bool register_requirement(Requirement requirement) {
  auto& all = registry();
  const auto add_twin = [&requirement](const std::string& id, Operation operation,
                                       const char* of_what) {
    if (id.empty()) return;
    Requirement twin = requirement;
    twin.id = id;
    twin.of_decode.clear();
    twin.of_rope.clear();
    twin.operation = operation;
    twin.is_twin = true;
    twin.sentence = of_what + requirement.sentence;
    register_requirement(std::move(twin));
  };
  add_twin(requirement.of_decode, Operation::decode, "of a decode call: ");
  add_twin(requirement.of_rope, Operation::rope, "of the rotary embedding alone: ");
  const auto place = std::lower_bound(
      all.begin(), all.end(), requirement,
      [](const Requirement& left, const Requirement& right) { return left.id < right.id; });
  all.insert(place, std::move(requirement));
  return true;
}

const std::vector<Requirement>& requirements() { return registry(); }

const Requirement* find_requirement(const std::string& id) {
  for (const Requirement& requirement : registry())
    if (requirement.id == id) return &requirement;
  return nullptr;
}

void CaseContext::focus(const AttentionProblem& problem) {
  if (problem_ == problem) return;
  problem_ = problem;
  inputs_.reset();
  expected_.reset();
  first_.reset();
  second_.reset();
}

const AttentionInputs& CaseContext::inputs(const AttentionProblem& problem) {
  focus(problem);
  if (!inputs_)
    inputs_ = shared_ ? shared_->inputs(problem)
                      : std::make_shared<const AttentionInputs>(make_inputs(problem));
  return *inputs_;
}

const Expected& CaseContext::expected(const AttentionProblem& problem) {
  const AttentionInputs& values = inputs(problem);
  if (expected_) return *expected_;
  const PrecisionProfile profile = declaration().profile_for(problem.dtype);
  expected_ = shared_ ? shared_->expected(problem, profile)
                      : std::make_shared<const Expected>(expect(problem, values, profile));
  return *expected_;
}

std::shared_ptr<const Expected> CaseContext::expected(const AttentionProblem& problem,
                                                      const AttentionInputs& inputs) const {
  const PrecisionProfile profile = declaration().profile_for(problem.dtype);
  return shared_ ? shared_->expected(problem, inputs, profile)
                 : std::make_shared<const Expected>(expect(problem, inputs, profile));
}

bool CaseContext::claim_audit(const AttentionProblem& problem) {
  return !shared_ || shared_->claim_audit(problem, declaration().profile_for(problem.dtype));
}

const Observation& CaseContext::first(const AttentionProblem& problem) {
  const AttentionInputs& values = inputs(problem);
  if (!first_) first_ = call(problem, values, {.flush = Flush::high, .poison = Poison::nan});
  return *first_;
}

const Observation& CaseContext::second(const AttentionProblem& problem) {
  const AttentionInputs& values = inputs(problem);
  if (!second_) second_ = call(problem, values, {.flush = Flush::low, .poison = Poison::finite});
  return *second_;
}

Observation CaseContext::call(const AttentionProblem& problem, const AttentionInputs& inputs,
                              const CallOptions& options) {
  ++calls;
  CallOptions limited = options;
  limited.limits = limits;
  Observation seen = observe(subject_, problem, inputs, limited);
  if (!seen.call.accident || !seen.call.accident->killed) return seen;
  host_killed_ = true;
  if (kills_itself && *kills_itself)
    seen.call.accident = Accident{
        Verdict::crash, Reason::none,
        "signal 9 (SIGKILL), in one fresh host after the other while another case works", true};
  return seen;
}

std::optional<CaseResult> judge_call(const Observation& observation, const Declaration&,
                                     const AttentionProblem&) {
  const CallStatus& call = observation.call;
  CaseResult result;
  if (call.accident) {
    result.verdict = call.accident->verdict;
    result.reason = call.accident->reason;
    result.detail = call.accident->sentence;
    return result;
  }
  const std::string said = call.message.empty() ? "" : ": " + call.message;
  switch (call.status) {
    case ATTEST_OK: return std::nullopt;
    case ATTEST_UNSUPPORTED:
      result.verdict = Verdict::unsupported;
      result.detail = "refused" + said;
      return result;
    case ATTEST_INVALID:
      result.verdict = Verdict::fail;
      result.reason = Reason::wrong_reject;
      result.detail = "calls a legal problem invalid" + said;
      return result;
    case ATTEST_OUT_OF_MEMORY:
      result.verdict = Verdict::out_of_memory;
      result.detail = "returned ATTEST_OUT_OF_MEMORY" + said;
      return result;
    case ATTEST_FAILED:
      result.verdict = Verdict::fail;
      result.reason = Reason::wrong_reject;
      result.detail = "returned ATTEST_FAILED" + said;
      return result;
    default:
      result.verdict = Verdict::fail;
      result.reason = Reason::junk_status;
      result.detail = call.message.empty() ? "returned status " + std::to_string(call.status) +
                                                 ", which means nothing"
                                           : call.message;
      return result;
  }
}

}  // namespace attest
