// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets hold a parser to.
#pragma once

#include <cstdlib>

#include "attest/text.hpp"
#include "reports/text.hpp"

/// Ends the target, with a report, where the condition does not hold.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// Refused in one line of printable ASCII that says something.
template <class Result>
void require_refusal(const Result& result) {
  require(!result.error().empty() && !attest::unprintable_column(result.error()));
}

/// Refused in one line that is safe on a terminal: it may quote foreign text.
template <class Result>
void require_plain_refusal(const Result& result) {
  require(!result.error().empty() && attest::plain(result.error()) == result.error());
}
