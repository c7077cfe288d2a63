// SPDX-License-Identifier: Apache-2.0
// The second half of a probe: with the kernel's encodings known, what its empty and padding rows
// hold, how precisely it computes, and what it could promise.
#pragma once

#include <vector>

#include "harness/requirement.hpp"
#include "properties/probe.hpp"

namespace attest {

void probe_rows(CaseContext& context, Declaration& declaration,
                std::vector<ProbeFinding>& findings);
/// The tightest preset under which every one of a hundred problems passes, by type.
void probe_precision(const OpenDeclared& open, Declaration& declaration,
                     std::vector<ProbeFinding>& findings);
void probe_promises(CaseContext& context, Declaration& declaration,
                    std::vector<ProbeFinding>& findings);

}  // namespace attest
