// SPDX-License-Identifier: Apache-2.0
// A probe of a kernel in its host, for `attest probe` and for checks of what declares nothing.
#pragma once

#include "harness/subject.hpp"
#include "properties/probe.hpp"

namespace attest {

/// Throws CommandError.
ProbeReport probe_subject(const SubjectSpec& spec);

}  // namespace attest
