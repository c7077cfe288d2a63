// SPDX-License-Identifier: Apache-2.0
#include "properties/perturb.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  return check_invisible(context, problem, Replacement::finite, Reason::law_broken,
                         "another finite value where nothing is visible");
}

ATTEST_REQUIREMENT(
    mask_no_leak,
    {
        .id = "MASK-NOLEAK",
        .sentence =
            "another finite value of an invisible key, value, bias or mask entry changes no bit "
            "of a row that does not see it",
        .adapt = adapt_to_invisible,
        .check = check,
        .share = 400,
        .of_decode = "CACHE-NOLEAK",
    });

}  // namespace
}  // namespace attest
