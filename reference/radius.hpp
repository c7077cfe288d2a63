// SPDX-License-Identifier: Apache-2.0
// The certified radius: how far the fast oracle's own value may be from the exact one. An a-priori
// bound from sizes that the oracle has at hand (A, |z|, n, X), twice what the analysis gives.
// docs/tolerance.md, Certified radius.
#pragma once

#include "reference/engine.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// What the arithmetic does to one row. All errors are taken relative to the largest weight: where
/// scores are so large that only their order is known, a row of one key is still exact.
struct RowError {
  double lse = 0;        ///< radius of lse
  double sum_units = 0;  ///< rounding of a sum over the keys, in units of the sum of magnitudes
};

/// Fills row.p_error: p_error_j >= |p_j as computed - p_j|.
RowError row_error(const Engine& engine, const ScoreRules& rules, double head_dim, RowScores& row);

/// Radius of channel c of o. `unit`: what the sums are in units of. `ends`: the result left the
/// normal numbers, where the pair (value, low) ends at 2^-1074.
double radius_o(const Engine& engine, const RowError& error, const ChannelSums& sums,
                double max_abs_v, std::size_t c, double unit, bool ends);

}  // namespace attest
