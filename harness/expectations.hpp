// SPDX-License-Identifier: Apache-2.0
// The expectations file: failures that are known. One per line, '#' starts a comment:
//
//   status requirement case-pattern reason until why...
//   fail MASK-NOLEAK *window=* wrong_value 2027-01-01 waiting for the tile bound fix
//
// `status` is fail or warn, the pattern is a shell glob over the case line, `until` a date or `-`.
// An expected failure must fail for its reason; an entry whose failures are gone is stale, and
// fails the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/result.hpp"
#include "attest/verdict.hpp"

namespace attest {

struct Expectation {
  Verdict status = Verdict::fail;
  std::string requirement, pattern;
  Reason reason = Reason::none;
  std::string until;  ///< ISO date or "-"
  std::string why;
  int line_number = 0;
  std::string line;
};

/// `known_requirements` are the ids that exist; the error names file line and word.
Result<std::vector<Expectation>> parse_expectations(
    std::string_view text, const std::vector<std::string>& known_requirements);

/// Shell glob: * and ?, everything else literal.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace attest
