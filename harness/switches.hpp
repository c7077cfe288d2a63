// SPDX-License-Identifier: Apache-2.0
// What a problem can use beyond the plain one, as fields to turn off: one row per thing, so that
// the measure of simplicity and the steps of shrinking cannot disagree.
#pragma once

#include <span>

#include "attest/problem.hpp"

namespace attest {

struct Switch {
  bool (*on)(const AttentionProblem&);
  /// May leave the problem illegal; mend() follows.
  void (*off)(AttentionProblem&);
};

std::span<const Switch> switches();

}  // namespace attest
