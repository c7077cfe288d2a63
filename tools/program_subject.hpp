// SPDX-License-Identifier: Apache-2.0
// Kernels that are no libraries: a function in Python, a program of any language.
#pragma once

#include <optional>
#include <string>

#include "harness/subject.hpp"

namespace attest {

/// What the word names, where it names no library:
///   mine.py::attention, package.module::attention   a function; run by $ATTEST_PYTHON or python3
///   jsonl:PROGRAM ARGS, safetensors:PROGRAM ARGS    a program that speaks that protocol, by a
///   shell
/// with `stdio:` in front of PROGRAM where it answers on stdin and stdout (ssh). CommandError where
/// it cannot be.
std::optional<SubjectSpec> program_subject(const std::string& word);

}  // namespace attest
