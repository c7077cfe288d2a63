// SPDX-License-Identifier: Apache-2.0
// Writing down what killed the host before it dies.
#pragma once

#include "harness/host/protocol.hpp"

namespace attest {

/// Fatal signals fill header.fault, on a stack of their own, and end the process.
void report_faults(HostHeader& header);
/// Fatal signals end the process without a word, as by default: for a forked child.
void leave_faults();
/// Where the arena lies now, so that a fault's address can be told as an offset in it.
void faults_in_arena(const std::byte* base, std::uint64_t bytes);

}  // namespace attest
