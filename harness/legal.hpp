// SPDX-License-Identifier: Apache-2.0
// The nearest legal problem: what generation and shrinking put every edited problem through, so
// that an edit need not know what depends on the field it changes.
#pragma once

#include "attest/problem.hpp"

namespace attest {

/// Total, also for hostile field values; the result satisfies problem_error() == nullopt. A legal
/// problem comes back unchanged. Fields whose owner is off go back to their defaults, per-sequence
/// lists get the length of the batch, literal values the storage type; a family that the shape does
/// not allow becomes a similar one.
AttentionProblem mend(AttentionProblem problem);

}  // namespace attest
