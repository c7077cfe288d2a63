// SPDX-License-Identifier: Apache-2.0
// The host's malloc.
#pragma once

#include "harness/host/protocol.hpp"

namespace attest {

/// From here on, allocations that return NULL are counted in header.failed_allocations: a kernel
/// that then dereferences it ran out of memory.
void count_failed_allocations(HostHeader& header);
/// From now on memory that is handed out or given back is filled with this; 0: left as it is.
void fill_allocations(std::uint64_t pattern);

/// From here on the most memory that is handed out at once is kept.
void watch_peak();
/// That, beyond what was handed out when watch_peak() was called; kNotMeasured in builds with
/// another allocator.
std::uint64_t peak_since_watched();

}  // namespace attest
