// SPDX-License-Identifier: Apache-2.0
// The case line: one line of text that is a whole problem, the same bits on every machine.
//
//   attention.forward dtype=bf16 hq=8 hkv=2 lq=33 lk=65 d=64 base=causal align=top_left window=16,0
//   data=needle seed=17
//
// Only what differs from the default is printed; hkv defaults to hq, dv to d.
// parse_case(print_case(p)) == p for every legal p. Keys and values: docs/case-line.md.
#pragma once

#include <string>
#include <string_view>

#include "attest/problem.hpp"
#include "attest/result.hpp"

namespace attest {

std::string print_case(const AttentionProblem& problem);

/// Refuses unknown and repeated keys, malformed values, and problems that contradict themselves;
/// the error names the key.
Result<AttentionProblem> parse_case(std::string_view line);

/// The shortest decimal text that reads back as exactly this double; "inf", "-inf", "nan".
std::string print_number(double value);

}  // namespace attest
