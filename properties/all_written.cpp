// SPDX-License-Identifier: Apache-2.0
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  const Observation& first = context.first(problem);
  const Observation& second = context.second(problem);
  for (const Output output : {Output::o, Output::lse}) {
    const bool is_o = output == Output::o;
    // Junk of one kind can be a coincidence; an element that holds the junk of both was not
    // written.
    const std::vector<std::size_t> missing =
        unwritten(is_o ? first.o_junk : first.lse_junk, is_o ? second.o_junk : second.lse_junk);
    if (missing.empty()) continue;
    const double actual = is_o ? second.o[missing[0]] : second.lse[missing[0]];
    CaseResult result = element_failure(
        problem, output, missing[0], 0, actual, Reason::unwritten,
        std::to_string(missing.size()) + " of " +
            std::to_string(is_o ? first.o.size() : first.lse.size()) + " elements of " +
            std::string(name(shown_as(problem, output))) + " are left unwritten");
    result.elements_failed = static_cast<std::int64_t>(missing.size());
    for (const std::size_t flat : missing)
      if (result.failed_elements.size() < 4096 && flat != missing[0])
        result.failed_elements.push_back(static_cast<std::uint32_t>(flat));
    return result;
  }
  CaseResult result;
  result.elements_compared = static_cast<std::int64_t>(first.o.size() + first.lse.size());
  return result;
}

ATTEST_REQUIREMENT(all_written, {
                                    .id = "MEM-WRITTEN",
                                    .sentence = "every element of every wanted output is written",
                                    .check = check,
                                    .of_decode = "CACHE-WRITTEN",
                                    .of_rope = "ROPE-WRITTEN",
                                });

}  // namespace
}  // namespace attest
