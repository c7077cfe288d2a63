// SPDX-License-Identifier: Apache-2.0
// The pictures of attest plot, a file for each.
#pragma once

#include <string>

#include "attest/verdict.hpp"
#include "tools/arguments.hpp"

namespace attest {

/// To --svg, and to --png where that is asked for. A CommandError says why it cannot be written.
void write_picture(const Arguments& arguments, const std::string& svg);

ExitCode plot_weights(const Arguments& arguments);
ExitCode plot_memory(const Arguments& arguments);

}  // namespace attest
