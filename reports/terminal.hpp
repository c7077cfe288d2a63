// SPDX-License-Identifier: Apache-2.0
// The screen a person reads: verdict, causes, scope, what next.
#pragma once

#include <string>

#include "attest/record.hpp"

namespace attest {

struct TerminalOptions {
  bool colour = false;
  int width = 100;     ///< columns; replay lines and commands are never broken, whatever it is
  int height = 40;     ///< rows a failing run may take, long replay lines counted as they wrap
  bool brief = false;  ///< one line
};

/// Ends in a newline. ASCII alone, but for what the record itself holds.
std::string terminal_report(const Record& record, const TerminalOptions& options = {});

}  // namespace attest
