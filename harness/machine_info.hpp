// SPDX-License-Identifier: Apache-2.0
// What a record says of the machine and of this build.
#pragma once

#include <string>

#include "attest/record.hpp"

namespace attest {

MachineInfo machine_info();
/// Of the whole machine.
std::int64_t memory_bytes();

/// "0.1.0"
std::string tool_version();

/// Now, UTC: "2026-11-29T19:25:42Z".
std::string utc_now();
/// CPU seconds of this process and its ended children.
double cpu_seconds_used();

/// 64-bit FNV-1a of a file's content in hex; "" where it cannot be read.
std::string file_hash(const std::string& path);

}  // namespace attest
