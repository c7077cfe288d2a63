// SPDX-License-Identifier: Apache-2.0
// The yardstick: f32 operations per second of one thread that does nothing but fused multiply-adds
// in registers, two operations each, on the widest vectors of the machine. Measured once per
// process, best of ten stretches of about 2 ms.
#pragma once

namespace attest {

double fma_rate();

}  // namespace attest
