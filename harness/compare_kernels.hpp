// SPDX-License-Identifier: Apache-2.0
// Whether two kernels can be told apart at all: by what they return and leave in memory, bit for
// bit. No oracle, no tolerance.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "harness/subject.hpp"
#include "harness/suite.hpp"

namespace attest {

/// What a kernel does on one problem that its base does not, each called in several ways: "o
/// differs". nullopt: nothing. What the base itself does not do twice does not count.
std::optional<std::string> difference(Subject& kernel, Subject& base,
                                      const AttentionProblem& problem);

/// The first difference over the units of a list, with its case line.
std::optional<std::string> first_difference(Subject& kernel, Subject& base, const WorkList& work,
                                            const std::function<bool()>& proceed);

}  // namespace attest
