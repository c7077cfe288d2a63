// SPDX-License-Identifier: Apache-2.0
// The host's malloc: the C library's own, with failures counted. Every library that is loaded into
// the process binds to these, so that "out of memory" is known and not guessed from a NULL
// dereference. Not in sanitizer builds, which have an allocator of their own.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "harness/host/fault_handler.hpp"

namespace attest {

namespace {
HostHeader* counted_in = nullptr;
}

void count_failed_allocations(HostHeader& header) { counted_in = &header; }

}  // namespace attest

#if defined(__GLIBC__) && !defined(ATTEST_SANITIZED)

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

static void* counted(void* made) {
  if (!made && attest::counted_in)
    __atomic_fetch_add(&attest::counted_in->failed_allocations, std::uint64_t{1}, __ATOMIC_RELAXED);
  return made;
}

void* malloc(size_t bytes) noexcept { return counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept { return counted(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) noexcept {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return counted(__libc_memalign(alignment, bytes));
}

void* realloc(void* old, size_t bytes) noexcept {
  void* made = __libc_realloc(old, bytes);
  return bytes ? counted(made) : made;
}

int posix_memalign(void** made, size_t alignment, size_t bytes) noexcept {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* block = counted(__libc_memalign(alignment, bytes));
  if (!block) return ENOMEM;
  *made = block;
  return 0;
}

}  // extern "C"

#endif
