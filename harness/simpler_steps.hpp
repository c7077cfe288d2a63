// SPDX-License-Identifier: Apache-2.0
// The steps of simpler(), by what they make smaller.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "attest/problem.hpp"
#include "harness/complexity.hpp"

namespace attest {

/// Collects the problems one step simpler than `from`. An edit may leave a problem illegal: it is
/// mended, and dropped where it then is no simpler, or was found before.
class Steps {
 public:
  explicit Steps(const AttentionProblem& from) : from_(from), complexity_(complexity(from)) {}

  const AttentionProblem& from() const { return from_; }

  template <class Edit>
  void edit(Edit change) {
    AttentionProblem edited = from_;
    change(edited);
    propose(std::move(edited));
  }
  void propose(AttentionProblem edited);

  std::vector<AttentionProblem> found() && { return std::move(found_); }

 private:
  const AttentionProblem& from_;
  Complexity complexity_;
  std::vector<AttentionProblem> found_;
};

/// 1, half, a quarter and a sixteenth less, one less.
std::vector<std::int64_t> smaller_extents(std::int64_t extent);

void segments_down(Steps& steps);   ///< segments of a packed batch: fewer, shorter
void positions_down(Steps& steps);  ///< windows, lengths, pads, offsets, prefixes towards 0
void choices_down(Steps& steps);    ///< every smaller value of every kind, axes, factors
void data_down(Steps& steps);       ///< family, seed
void literals_down(Steps& steps);   ///< values written out, then each towards 0 and 1

}  // namespace attest
