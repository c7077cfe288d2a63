// SPDX-License-Identifier: Apache-2.0
// Values written out in the case line.
#pragma once

#include "attest/problem.hpp"

namespace attest {

/// q and k (and v, unless v_data says where it comes from) as data=list; the other generated
/// tensors alike where `all` is set. nullopt where that is more than fits one line: 64 values of q,
/// k and v together, 64 of each other tensor.
std::optional<AttentionProblem> listed(const AttentionProblem& problem, bool all);

/// `edited` with the literal values of `from` cut to its shape: the leading rows, heads, keys and
/// channels; axes that were broadcast are repeated.
AttentionProblem with_cut_literals(const AttentionProblem& from, AttentionProblem edited);

}  // namespace attest
