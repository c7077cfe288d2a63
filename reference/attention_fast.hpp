// SPDX-License-Identifier: Apache-2.0
// The fast oracle, row by row: the steps between the problem and expect() of expected.hpp.
#pragma once

#include <cstdint>

#include "reference/channel_sums.hpp"
#include "reference/engine.hpp"
#include "reference/expected.hpp"
#include "reference/groups.hpp"
#include "reference/head.hpp"
#include "reference/profile.hpp"
#include "reference/radius.hpp"
#include "reference/row_data.hpp"
#include "reference/visible.hpp"

namespace attest {

/// What stays the same over a call of expect().
struct OracleCall {
  const AttentionProblem& problem;
  const AttentionInputs& inputs;
  const OracleOptions& options;
  Engine engine;
  Arithmetic arithmetic;
  ScoreRules rules;                    ///< slope is set per head
  double keep_high = 1, keep_low = 0;  ///< the dropout factor to 2^-106
};

/// Everything that grows with a problem's size, kept from call to call of a thread.
struct Workspace {
  RotationTable query_rotations, key_rotations;
  Head head;
  ColumnMajor queries;
  TileScores tile;
  RowScores row;
  RowTerms terms;
  Groups groups;
  ChannelSums sums;
};

/// Where one row stands.
struct RowPlace {
  std::int64_t b = 0, h = 0, i = 0;
  std::size_t index = 0;  ///< (b * Hq + h) * Lq + i
};

/// Collects the keys with a score into work.row.key and .value and says what kind of row it is, as
/// row_kind() does, with the flags of Head in place of its searches for NaN. Of a lowest_only row
/// too. Does not look at the domain.
RowKind collect_keys(const OracleCall& call, const Rows& rows, const RowPlace& place,
                     bool query_is_finite, Workspace& work);

/// Rows without arithmetic: the conventions of the problem, exactly.
void write_padding(const OracleCall& call, const RowPlace& place, Expected& expected);
void write_empty(const OracleCall& call, const Rows& rows, const RowPlace& place,
                 Expected& expected);
void write_empty_sink(const OracleCall& call, const RowPlace& place, Expected& expected);
void write_unjudged(const OracleCall& call, const RowPlace& place, Expected& expected);
/// The hull of f_ij v_j, widened by what averaging may round.
void write_lowest_only(const OracleCall& call, const RowPlace& place, const Workspace& work,
                       Expected& expected);

}  // namespace attest
