// SPDX-License-Identifier: Apache-2.0
// What a failure page shows of a call: the case made once more, watched.
#pragma once

#include <optional>
#include <string>

#include "attest/record.hpp"
#include "harness/subject.hpp"
#include "reports/failure_call.hpp"

namespace attest {

/// The first standard call of the failure's minimal case, with what the oracle expects of it.
/// nullopt where the case cannot be called.
std::optional<FailureCall> call_of(const Failure& failure, const SubjectSpec& spec);

/// Why `folder` cannot take pages; nullopt where it can.
std::optional<std::string> check_pages_folder(const std::string& folder);

/// A page, and a program where the call is small enough, for every cause, and README.md with the
/// list of them. Pages of an earlier run that this one does not have are removed. Throws
/// CommandError where a file cannot be written.
void write_pages(const std::string& folder, const Record& record, const SubjectSpec& spec);

}  // namespace attest
