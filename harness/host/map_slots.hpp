// SPDX-License-Identifier: Apache-2.0
// The arena's address space, the same in the runner and in the host: slots of shared memory in a
// reservation that nothing else may be touched in.
#pragma once

#include "harness/host/protocol.hpp"

namespace attest {

/// Maps the slots of `fd` and touches the pages of those up to 1 GiB (MAP_POPULATE: a fault in a
/// timed call would cost 18 us a page). Returns the base, or nullptr with errno set.
std::byte* map_slots(int fd, const SlotRange (&slots)[kNumSlots], std::uint64_t arena_bytes);
void unmap_slots(std::byte* base, std::uint64_t arena_bytes);

}  // namespace attest
