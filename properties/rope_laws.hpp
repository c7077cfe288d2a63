// SPDX-License-Identifier: Apache-2.0
// What the laws of the rotary embedding alone share. A law says something of one call, or of two
// calls whose results must agree. Each element is allowed the derived tolerance of its own call, so
// that a law holds for every honest kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

/// One call of rope, its values, and what the oracle allows of each element of y.
struct RopeRun {
  AttentionProblem problem;
  AttentionInputs inputs;
  Observation seen;
  Expected expected;

  double y(std::size_t flat) const { return seen.o[flat]; }
  double allowed(std::size_t flat) const { return expected.o.t_mixed[flat]; }
  /// The row is judged by value and came out finite.
  bool telling(std::int64_t b, std::int64_t h, std::int64_t i) const;
  std::size_t flat(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) const {
    return inputs.q.index(b, h, i, c);
  }
};

/// The case's own call, or why it did not come back.
std::optional<CaseResult> run_rope(CaseContext& context, const AttentionProblem& problem,
                                   RopeRun& run);
/// A call with other values or positions; its dimensions become those of `x`.
std::optional<CaseResult> run_rope(CaseContext& context, AttentionProblem problem, Dense<double> x,
                                   RopeRun& run);

/// position_of_rows(problem): explicit ids, [B * L].
std::vector<std::int64_t> positions_of(const AttentionProblem& problem);

/// Few rows and channels, none of them missing: what adapt functions start with.
AttentionProblem rope_sized(AttentionProblem problem, const Declaration& declaration,
                            std::int64_t least_rows = 1);

/// Rows whose values and positions were given anew are random numbers no more.
void without_literals(AttentionProblem& problem);

/// Collects what a law says: |value - law| <= allowed for each of its numbers.
class RopeLaw {
 public:
  explicit RopeLaw(const AttentionProblem& problem) : problem_(problem) {}
  /// `flat` is the element of y to show; `what` is asked only for a failure, for the sentence "...
  /// is `value` where `law` follows".
  template <class What>
  void add(std::size_t flat, long double law, long double value, long double allowed, What&& what) {
    ++result_.elements_compared;
    const long double error = value > law ? value - law : law - value;
    if (error <= allowed) return;
    ++result_.elements_failed;
    if (first_) return;
    first_ = failure(flat, static_cast<double>(law), static_cast<double>(value), what());
  }
  CaseResult finish() &&;

 private:
  CaseResult failure(std::size_t flat, double law, double value, const std::string& what) const;
  const AttentionProblem& problem_;
  CaseResult result_;
  std::optional<CaseResult> first_;
};

/// Rows of `other` answer rows of `base`: row_of(b, h, i) and channel_of(c) say which.
struct SameRows {
  std::size_t (*row_of)(const RopeRun& other, std::int64_t b, std::int64_t h, std::int64_t i);
  std::vector<std::int64_t> channel_of;  ///< empty: the same
  double angle_slack = 0;  ///< more is allowed: of the norm of the pair, by which angles may differ
};
void compare_turned(const RopeRun& base, const RopeRun& other, const SameRows& same,
                    const std::string& what, RopeLaw& law);

}  // namespace attest
