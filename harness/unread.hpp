// SPDX-License-Identifier: Apache-2.0
// A problem and its values as the kernel gets to see them.
#pragma once

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"

namespace attest {

/// The problem becomes the one that is told (as_told()); values that are never read become NaN, as
/// they lie in memory in the call with poison nan.
void tell(const Declaration& declaration, AttentionProblem& problem, AttentionInputs& inputs);

}  // namespace attest
