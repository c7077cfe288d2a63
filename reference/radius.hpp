// SPDX-License-Identifier: Apache-2.0
// The certified radius: how far the fast oracle's own value may be from the exact one. An a-priori
// bound from sizes that the oracle has at hand (A, |z|, n, X), twice what the analysis gives.
// docs/tolerance.md, Certified radius.
#pragma once

#include "reference/engine.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// What the arithmetic does to the weights of one row; RowScores::p_error has it key by key.
struct RowError {
  double l = 0;           ///< relative error of the sum l; 0 where p_error contains it
  double lse = 0;         ///< radius of lse
  double sum_units = 0;   ///< rounding of a sum over the keys, in units of the sum of magnitudes
  bool hopeless = false;  ///< scores so large that weights are known by their order at best
};

RowError row_error(const Engine& engine, const ScoreRules& rules, double head_dim, RowScores& row);

/// Radius of channel c of o. `factor`: unit of the channel times the dropout factor.
double radius_o(const Engine& engine, const RowError& error, const ChannelSums& sums,
                double max_abs_v, std::size_t c, double factor);

}  // namespace attest
