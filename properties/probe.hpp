// SPDX-License-Identifier: Apache-2.0
// What a kernel does that says nothing of itself: it is called, and its outputs are compared with
// what every convention would give. What fits no convention is not declared.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/result.hpp"
#include "harness/subject.hpp"

namespace attest {

/// One thing found out, with what it rests on.
struct ProbeFinding {
  std::string topic;     ///< "lse base", "feature softcap"
  std::string answer;    ///< "2", "right", "refused", "wrong"
  std::string evidence;  ///< a case line with its numbers, or what was counted
};

struct ProbeReport {
  std::string kernel, version;
  Declaration declaration;  ///< ready to paste: print_declaration() reads back
  std::vector<ProbeFinding> findings;
};

/// What the subject has to be opened with: it is asked for everything, in the default encodings,
/// with room for every precision.
extern const char* const kProbeDeclaration;

/// Opens the kernel under a declaration that takes the place of its own.
using OpenDeclared =
    std::function<std::unique_ptr<Subject>(const std::string& declaration, OpenError& error)>;

/// Calls the kernel a few thousand times, on small problems. The error is one line: a kernel that
/// takes no plain problem, or does nothing known with one.
Result<ProbeReport> probe(const OpenDeclared& open);

}  // namespace attest
