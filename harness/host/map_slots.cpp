// SPDX-License-Identifier: Apache-2.0
#include "harness/host/map_slots.hpp"

#include <errno.h>
#include <sys/mman.h>

namespace attest {

namespace {
// A larger slot is touched in few places, or touching it takes long anyway.
constexpr std::uint64_t kPopulateMost = std::uint64_t{1} << 30;
}  // namespace

std::byte* map_slots(int fd, const SlotRange (&slots)[kNumSlots], std::uint64_t arena_bytes) {
  void* reserved =
      mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(reserved);
  for (const SlotRange& slot : slots) {
    const int populate = slot.bytes <= kPopulateMost ? MAP_POPULATE : 0;
    if (mmap(base + slot.offset, slot.bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | populate, fd,
             static_cast<off_t>(slot.file_offset)) == MAP_FAILED) {
      const int error = errno;
      munmap(base, arena_bytes);
      errno = error;
      return nullptr;
    }
  }
  return base;
}

void unmap_slots(std::byte* base, std::uint64_t arena_bytes) {
  if (base) munmap(base, arena_bytes);
}

}  // namespace attest
