// SPDX-License-Identifier: Apache-2.0
// What a run comes to: failures as the record holds them, how to see them again, the exit code.
#pragma once

#include <string>

#include "attest/record.hpp"
#include "harness/findings.hpp"

namespace attest {

/// `subject` as the user names it. Cause and expectations are filled in later.
Failure failure_of(const WorkList& work, const Finding& finding, const std::string& subject);

/// The command that shows a failure again.
std::string replay_command(const std::string& case_line, const std::string& subject,
                           const std::string& requirement);

/// The exit code that the record deserves.
ExitCode exit_code(const Record& record);

}  // namespace attest
