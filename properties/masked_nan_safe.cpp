// SPDX-License-Identifier: Apache-2.0
#include "properties/perturb.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.masked_nan_safe) return "not promised: masked_nan_safe";
  return std::nullopt;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  return check_invisible(context, problem, Replacement::non_finite, Reason::nan_leak,
                         "NaN or Inf where nothing is visible");
}

ATTEST_REQUIREMENT(
    masked_nan_safe,
    {
        .id = "MASK-NANSAFE",
        .sentence =
            "NaN and Inf in an invisible key, value or bias entry change no bit of a row that "
            "does not see it",
        .skip = skip,
        .adapt = adapt_to_invisible,
        .check = check,
        .share = 250,
        .of_decode = "CACHE-NANSAFE",
    });

}  // namespace
}  // namespace attest
