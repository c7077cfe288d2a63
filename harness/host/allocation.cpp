// SPDX-License-Identifier: Apache-2.0
// The host's malloc: the C library's own, with failures and bytes counted and memory filled. Every
// library that is loaded into the process binds to these. So "out of memory" is known and not
// guessed from a NULL dereference; what a call takes is measured; and what a kernel finds in memory
// that it did not write, be it new or freed, is junk and never the zeros of a fresh page or the
// results of its last call. Not in sanitizer builds, which have an allocator of their own.
#include "harness/host/allocation.hpp"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

namespace attest {

namespace {
HostHeader* counted_in = nullptr;
std::uint64_t junk = 0;  // 0: memory is left as it is
// Bytes that can be used in all blocks handed out and not yet taken back, and the most there were
// since watch_peak(). Threads add one after the other, so that neither drifts; which of two that
// allocate at once is first does not matter.
std::int64_t live_bytes = 0, live_before = 0, peak_bytes = 0;

[[maybe_unused]] void add_live(std::int64_t bytes) {
  const std::int64_t now = __atomic_add_fetch(&live_bytes, bytes, __ATOMIC_RELAXED);
  std::int64_t most = __atomic_load_n(&peak_bytes, __ATOMIC_RELAXED);
  while (now > most && !__atomic_compare_exchange_n(&peak_bytes, &most, now, true, __ATOMIC_RELAXED,
                                                    __ATOMIC_RELAXED)) {
  }
}
}  // namespace

void count_failed_allocations(HostHeader& header) { counted_in = &header; }

void fill_allocations(std::uint64_t pattern) { __atomic_store_n(&junk, pattern, __ATOMIC_RELAXED); }

void watch_peak() {
  live_before = __atomic_load_n(&live_bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&peak_bytes, live_before, __ATOMIC_RELAXED);
}

std::uint64_t peak_since_watched() {
#if defined(__GLIBC__) && !defined(ATTEST_SANITIZED)
  return static_cast<std::uint64_t>(__atomic_load_n(&peak_bytes, __ATOMIC_RELAXED) - live_before);
#else
  return kNotMeasured;
#endif
}

}  // namespace attest

#if defined(__GLIBC__) && !defined(ATTEST_SANITIZED)

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void* __libc_valloc(size_t bytes);
void* __libc_pvalloc(size_t bytes);
void __libc_free(void* block);

// Of one block: filling a gigabyte would touch pages that the kernel may never touch.
constexpr size_t kMostFilled = size_t{1} << 20;

static void fill(void* block, size_t from, size_t to) {
  const std::uint64_t pattern = __atomic_load_n(&attest::junk, __ATOMIC_RELAXED);
  if (!pattern || from >= to) return;
  if (to - from > kMostFilled) to = from + kMostFilled;
  auto* bytes = static_cast<unsigned char*>(block);
  for (; to - from >= sizeof pattern; from += sizeof pattern)
    memcpy(bytes + from, &pattern, sizeof pattern);
  memcpy(bytes + from, &pattern, to - from);
}

static std::int64_t usable(void* block) {
  return static_cast<std::int64_t>(malloc_usable_size(block));
}

static void* counted(void* made) {
  if (made)
    attest::add_live(usable(made));
  else if (attest::counted_in)
    __atomic_fetch_add(&attest::counted_in->failed_allocations, std::uint64_t{1}, __ATOMIC_RELAXED);
  return made;
}

static void* filled(void* made, size_t bytes) {
  if (counted(made)) fill(made, 0, bytes);
  return made;
}

void* malloc(size_t bytes) noexcept { return filled(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t bytes) noexcept { return counted(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) noexcept {
  return filled(__libc_memalign(alignment, bytes), bytes);
}
void* valloc(size_t bytes) noexcept { return filled(__libc_valloc(bytes), bytes); }
void* pvalloc(size_t bytes) noexcept { return filled(__libc_pvalloc(bytes), bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return filled(__libc_memalign(alignment, bytes), bytes);
}

void* realloc(void* old, size_t bytes) noexcept {
  const size_t had = old ? malloc_usable_size(old) : 0;
  void* made = __libc_realloc(old, bytes);
  const bool is_freed = old && !bytes;
  if (made || is_freed) attest::add_live(-static_cast<std::int64_t>(had));
  if (is_freed || !counted(made)) return made;
  fill(made, had, bytes);
  return made;
}

int posix_memalign(void** made, size_t alignment, size_t bytes) noexcept {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* block = filled(__libc_memalign(alignment, bytes), bytes);
  if (!block) return ENOMEM;
  *made = block;
  return 0;
}

void free(void* block) noexcept {
  if (block) {
    fill(block, 0, malloc_usable_size(block));
    attest::add_live(-usable(block));
  }
  __libc_free(block);
}

}  // extern "C"

#endif
