// SPDX-License-Identifier: Apache-2.0
// T_M and T_S of one element of o and of lse: the closed forms of docs/tolerance.md sections 3.3 to
// 3.5, term by term, from sums that others have made. Where a row is not of first order T_S is T_M.
#pragma once

#include "reference/profile.hpp"
#include "reference/row_data.hpp"

namespace attest {

/// Squares below this have lost digits to underflow, and with them the variance: T_S is T_M.
inline constexpr double kSmallestVariance = 0x1p-900;

struct Tolerance {
  double mixed = 0;  ///< T_M
  double stat = 0;   ///< T_S
};

/// What averaging alone does to channel c of o, in the channel's units: `acc` and Va of
/// docs/tolerance.md 3.3 and 3.4, with what all keys share.
struct ChannelError {
  double mixed = 0, variance = 0;
};
ChannelError channel_error(const Arithmetic& arithmetic, const RowSums& row,
                           const ChannelSums& sums, std::size_t c);

/// Channel c of o. `unit`: what the channel's sums are in units of (Head::unit times the dropout
/// factor).
Tolerance tolerance_o(const Arithmetic& arithmetic, const RowSums& row, const ChannelSums& sums,
                      std::size_t c, double unit);
Tolerance tolerance_lse(const Arithmetic& arithmetic, const RowSums& row);
/// An empty row with a sink: lse is the sink itself, through exp and log.
double tolerance_lse_sink(const Arithmetic& arithmetic, double sink);
/// The mean of n values with mean magnitude `abs_mean`, each weighted alike.
double tolerance_mean(const Arithmetic& arithmetic, double n, double abs_mean);

/// Relative error that all channels of a row of `keys` weights share when parts of it are merged
/// with the weights exp(lse_s - lse), which do not sum to 1. See docs/tolerance.md 3.6.
double merge_error(const Arithmetic& arithmetic, double keys, double lse);

/// First order is not enough where the weights may grow by 2 % or one of them carries 5 % of an
/// error.
bool is_nonlinear(const RowSums& row);

}  // namespace attest
