// SPDX-License-Identifier: Apache-2.0
// From the problem to what one kernel is told: the encodings that its declaration names, the
// scalars, and the values in memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "harness/layout.hpp"

namespace attest {

/// The problem to tell. Where the answer does not depend on the alignment it is given one that the
/// kernel declares: bottom_right, else top_left. Everything that depends on positions (the tables
/// of RoPE) must be made from this one.
AttentionProblem as_told(const AttentionProblem& problem, const Declaration& declaration);

/// Of a problem as_told().
PlacedScalars encode_scalars(const AttentionProblem& told, const Declaration& declaration,
                             int num_threads);

/// Which elements of a tensor of [B|1, H|1, L|1, X] may be read at all: a row outside its range,
/// and an entry of bias, mask or keep that every sequence sharing it has outside its range, never
/// is. The same for all heads.
class ReadableCells {
 public:
  ReadableCells() = default;  ///< all
  ReadableCells(std::int64_t batch, std::int64_t rows, std::int64_t columns);
  void allow(std::int64_t b, std::int64_t row, std::int64_t column) {
    cells_[index(b, row, column)] = 1;
  }
  bool all() const { return cells_.empty(); }
  /// `column` counts only where the cells have columns of their own.
  bool at(std::int64_t b, std::int64_t row, std::int64_t column) const {
    return all() || cells_[index(b, row, columns_ == 1 ? 0 : column)] != 0;
  }
  bool has_columns() const { return columns_ > 1; }

 private:
  std::size_t index(std::int64_t b, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>((b * rows_ + row) * columns_ + column);
  }
  std::int64_t rows_ = 0, columns_ = 1;
  std::vector<std::uint8_t> cells_;
};
ReadableCells readable_cells(const AttentionProblem& problem, Slot slot, const TensorForm& form);

/// Why the values do not have the shapes of the problem; nullopt where they do.
std::optional<std::string> shape_mismatch(const AttentionProblem& problem, const CallForm& form,
                                          const AttentionInputs& inputs);

/// Fills every region with poison and puts the values that may be read into it.
void write_values(const AttentionProblem& problem, const AttentionInputs& inputs,
                  const Declaration& declaration, const CallForm& form, const PlacedCall& call,
                  const std::vector<Region>& regions, Poison poison, std::byte* base);

}  // namespace attest
