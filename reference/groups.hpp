// SPDX-License-Identifier: Apache-2.0
// Keys whose errors cannot be taken as independent, because their scores are equal or nearly so:
// docs/tolerance.md sections 3.3 (kappa) and 3.4 (V1, VP).
//
// Both variances are the independent sum plus the sum over groups of the squared group sum. A key
// that is alone contributes its square twice, so it gets the factor sqrt 2 once and for all
// (RowTerms::lone_noise, lone_eps), and only keys with company are gone through a second time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/profile.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// Groups of at least two keys: group i has members [end[i-1], end[i]), numbers x of RowScores.
struct GroupList {
  std::size_t count = 0, num_members = 0;
  Buffer<std::int32_t> member, end;
};

struct Groups {
  GroupList equal;    ///< z equal up to 1e-13 (1 + |z|): their noise is one noise
  GroupList rounded;  ///< z within half a u_P of the first: their P rounds the same way
};

/// Sorts the keys by z, fills `groups`, terms.lone_noise and terms.lone_eps, and sums.kappa,
/// noise_grouped and eps_grouped. Keys whose weight underflows in double are in no group.
void find_groups(const Arithmetic& arithmetic, const RowScores& row, RowTerms& terms, RowSums& sums,
                 Groups& groups);

}  // namespace attest
