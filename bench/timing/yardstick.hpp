// SPDX-License-Identifier: Apache-2.0
// How fast the machine is at this moment, by loops that do nothing else: what measured times are
// held against. A hypervisor takes 3 to 50 % of a core in phases that no counter shows; a loop that
// runs just before and just after a sample shows them.
#pragma once

#include <cstddef>

namespace attest {

/// f32 operations per second of `threads` threads that do nothing but fused multiply-adds in
/// registers, two operations each, on the widest vectors of the machine; about 2 ms.
double measure_fma(int threads);
/// Additions of 64-bit integers per second, as many at once as a core can issue; about 1.5 ms.
/// Where somebody else uses the other half of a core (SMT), the FMA loop loses 5 to 10 %, this one
/// 45 %, a kernel between them.
double measure_integer(int threads);
/// exp of f32 in registers, values per second; about 2 ms.
double measure_exp(int threads);
/// Bytes per second that `threads` threads read from memory, each from 64 MiB of its own.
double measure_read(int threads);
/// Bytes per second read and written by memcpy of 32 MiB in each thread.
double measure_copy(int threads);

/// The best of `stretches` measurements.
template <class Measure>
double best_of(int stretches, const Measure& measure) {
  double best = 0;
  for (int n = 0; n < stretches; ++n) {
    const double rate = measure();
    if (rate > best) best = rate;
  }
  return best;
}

/// Reads twice what the caches hold, at least 64 MiB, so that the next call finds none of its
/// tensors there.
void chill_caches();

}  // namespace attest
