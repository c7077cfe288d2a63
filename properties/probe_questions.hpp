// SPDX-License-Identifier: Apache-2.0
// Asking a kernel one question: which of several answers do its outputs agree with?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/diagnose.hpp"

namespace attest {

/// One way to understand the call. `change` is empty for the call as it was asked.
struct Alternative {
  std::string label;
  std::function<void(Variant&)> change;
};
/// The alternative that a registered hypothesis is.
Alternative alternative(const std::string& label, const std::string& hypothesis_id);

struct Answer {
  enum class Kind { decided, undecided, unknown, refused, accident };
  Kind kind = Kind::refused;
  std::size_t chosen = 0;       ///< of decided: which alternative
  std::string evidence;         ///< case line and numbers, or the refusal, or the accident
  std::vector<Sample> samples;  ///< of the calls that came back
  /// Some alternative agrees with every call.
  bool agrees() const { return kind == Kind::decided || kind == Kind::undecided; }
  bool is(std::size_t alternative) const { return kind == Kind::decided && chosen == alternative; }
};

/// decided: one alternative agrees with every call, and every other one contradicts some call.
/// undecided: several agree with all. unknown: none does. refused: all calls were.
Answer ask(CaseContext& context, const std::vector<AttentionProblem>& problems,
           const std::vector<Alternative>& alternatives);

}  // namespace attest
