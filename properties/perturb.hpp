// SPDX-License-Identifier: Apache-2.0
// Changing what nobody may see. For one query row of every sequence, everything that it does not
// see is replaced: k and v of its invisible keys, and the bias, mask and keep entries of positions
// that another factor hides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

enum class Replacement : std::uint8_t {
  finite,      ///< +-24 in k (aligned with q, so that a leak takes the row over), +-288 in v
  non_finite,  ///< NaN and +-Inf in k, v and bias
};

struct Perturbed {
  AttentionInputs inputs;
  std::vector<std::uint8_t> watched;  ///< rows that see nothing of what was changed
  bool changed = false;
};

Perturbed perturb_invisible(const AttentionProblem& problem, const AttentionInputs& inputs,
                            Replacement replacement);

/// The problem with k and v that can be changed alone and some key that is hidden, or nullopt.
std::optional<AttentionProblem> adapt_to_invisible(AttentionProblem problem,
                                                   const Declaration& declaration);

/// Calls once with the problem's values and once with what is invisible replaced: no bit of a row
/// that sees nothing of it may change. `what` completes "... changes o[0,0,1,0]".
CaseResult check_invisible(CaseContext& context, const AttentionProblem& problem,
                           Replacement replacement, Reason reason, const std::string& what);

}  // namespace attest
