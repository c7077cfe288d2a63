// SPDX-License-Identifier: Apache-2.0
// A hypothesis: a known mistake or another convention, and what a kernel that made it would give.
//
// Adding one is adding lines to a file of properties/hypotheses/, or a file: write what the kernel
// does wrong as an edit of a Variant, or of a BackwardVariant, and
//   ATTEST_HYPOTHESIS(causal_strict, {.id = "causal_strict", .sentence = "...", .change = ...});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/variant_backward.hpp"

namespace attest {

struct Hypothesis {
  /// "causal_strict"; members of a family have a part behind '/', "first_block_nan/16", and only
  /// the best of a family is shown.
  std::string id;
  std::string sentence;  ///< what the kernel does, in plain words
  /// Kinds of planted faults that this sentence rightly explains, beside one of its own id.
  std::vector<std::string> explains;
  /// Of two that fit alike the lower one is shown first: 0 the ordinary mistake, 1 a rarer one or
  /// one with a number in it, 2 what would be said only where nothing else fits.
  int rank = 0;
  /// Whether the problem has what the mistake is about.
  bool (*applies)(const AttentionProblem&) = nullptr;
  /// Makes the mistake in forward calls.
  std::function<void(Variant&)> change;
  /// Instead of `change`: the kernel makes it in backward calls, and is right in forward ones.
  std::function<void(BackwardVariant&)> change_backward = {};
  /// Arithmetic in a narrower format: judged by the share of the error that it accounts for, since
  /// the errors are small and some of them come from elsewhere.
  bool is_rounding = false;
};

/// Sorted by rank, then id, whatever the link order.
const std::vector<Hypothesis>& hypotheses();
bool register_hypothesis(Hypothesis hypothesis);
/// The id without the part behind '/'.
std::string family_of(const std::string& id);

#define ATTEST_HYPOTHESIS(identifier, ...)                   \
  [[maybe_unused]] static const bool identifier##_is_known = \
      ::attest::register_hypothesis(::attest::Hypothesis __VA_ARGS__)

}  // namespace attest
