// SPDX-License-Identifier: Apache-2.0
// How many pairs of a query and a key a problem has: what the cost of attention is made of.
#pragma once

#include <optional>

#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "attest/result.hpp"

namespace attest {

/// Keys that an implementation takes together, and query rows; 1: none.
struct PairTile {
  std::int64_t rows = 1, keys = 1;
};

/// Counts over all sequences and query heads, of real rows alone (docs/semantics.md section 3).
/// They are whole numbers, held in double since those of a training run pass 2^63.
struct PairCounts {
  double rows = 0;           ///< query rows
  double rows_with_key = 0;  ///< those with a scored pair
  double sink_rows = 0;      ///< those whose head has a sink above -inf
  double sink_rows_with_key = 0;
  double grid = 0;       ///< every query row with every key row of its segment
  double visible = 0;    ///< pairs that visible() shows
  double scored = 0;     ///< without those that a bias of -inf hides
  double kept = 0;       ///< scored, and kept by dropout
  double kept_grid = 0;  ///< of the grid, kept by dropout
  double tiles = 0;      ///< tiles of the grid with a visible pair
  double row_tiles = 0;  ///< query rows and key tiles with a scored pair

  // Key rows, over key/value heads.
  double keys = 0;
  double keys_of_queries = 0;  ///< in segments that have a query
  double tile_keys = 0;        ///< in key tiles that a row of any of the sharing heads sees
};

/// Exact for every mask. Positions (base, window, global tokens, lengths, packing) take one step
/// per query row; tensors (mask, blocks, a bias of -inf, dropout) are generated and looked at pair
/// by pair. Of a decode call those of its whole sequences. The error is one line: more pairs than
/// can be looked at.
Result<PairCounts> count_pairs(const AttentionProblem& problem, const PairTile& tile);

/// The same with given tensors, pair by pair.
PairCounts count_pairs(const AttentionProblem& problem, const AttentionInputs& inputs,
                       const PairTile& tile);

}  // namespace attest
