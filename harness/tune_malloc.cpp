// SPDX-License-Identifier: Apache-2.0
#include "harness/tune_malloc.hpp"

#include <malloc.h>

namespace attest {

void tune_malloc() {
#if defined(__GLIBC__)
  // The largest threshold that mallopt accepts: half of a heap.
  mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 1 << 20);
#endif
}

}  // namespace attest
