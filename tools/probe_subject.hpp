// SPDX-License-Identifier: Apache-2.0
// A probe of a kernel in its host, for `attest probe` and for checks of what declares nothing.
#pragma once

#include "harness/subject.hpp"
#include "properties/probe.hpp"

namespace attest {

/// Throws CommandError.
ProbeReport probe_subject(const SubjectSpec& spec);

/// A kernel that says nothing of itself is probed, and from then on held to what was found: said on
/// standard error, and written into the spec. Others stay as they are.
void assume_declaration(SubjectSpec& spec);

}  // namespace attest
