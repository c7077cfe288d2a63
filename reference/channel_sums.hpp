// SPDX-License-Identifier: Apache-2.0
// The sums over keys that every channel of o needs: docs/tolerance.md sections 3.3 and 3.4.
#pragma once

#include "reference/groups.hpp"
#include "reference/head.hpp"
#include "reference/profile.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// Fills `sums`, whose o, abs_sum and square_sum are there already. x is v, or 0 where dropout
/// takes the key.
void channel_sums(const Arithmetic& arithmetic, const RowScores& row, const RowTerms& terms,
                  const Groups& groups, const Head& head, ChannelSums& sums);

}  // namespace attest
