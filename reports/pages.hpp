// SPDX-License-Identifier: Apache-2.0
// Failure pages: one cause of a record in Markdown, with the numbers of its smallest case and a
// program in C that makes the call without Attest.
#pragma once

#include <string>

#include "attest/record.hpp"
#include "reports/failure_call.hpp"
#include "reports/summary.hpp"

namespace attest {

/// Calls of more elements are not written out.
inline constexpr std::size_t kMostProgramElements = 20'000;

/// Whether the call is small enough to be written out as a program.
bool fits_program(const FailureCall& call);

/// A C11 program for `cc -Iinclude cause-1.c -ldl`: exit code 0 where the kernel does as it should,
/// 1 (or a signal) where not, 2 where there is nothing to call.
std::string failure_program(const Record& record, const CauseView& view, const FailureCall& call);

/// `call` is nullptr where the case could not be called again. `program` is the name of the file
/// with the program, and `text` its text; "": none.
std::string failure_page(const Record& record, const CauseView& view, const FailureCall* call,
                         const std::string& program, const std::string& text);

/// The list of the pages, "cause-1.md" and so on.
std::string pages_index(const Record& record);

}  // namespace attest
