// SPDX-License-Identifier: Apache-2.0
// What the yardsticks around a sample say of it.
#pragma once

#include <vector>

#include "attest/bench_record.hpp"

namespace attest {

/// A sample whose yardstick falls by more is dropped.
inline constexpr double kMostSag = 0.15;

/// The lesser share of the best rates that the loops beside this sample reached.
double share_of_best(const BenchSample& sample, const Yardsticks& best);

/// Of every sample the yardstick, and whether it is dropped.
void settle(std::vector<BenchSample>& samples, const Yardsticks& best, double most_sag = kMostSag);

/// Records of one machine (processor and host name) are measured by the best of all of them: a run
/// that was slowed down from its beginning to its end does not know of it. Others stay as they are.
void settle_together(std::vector<BenchRecord>& runs);

}  // namespace attest
