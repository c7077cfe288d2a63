// SPDX-License-Identifier: Apache-2.0
#include "bench/timing/settle.hpp"

#include <algorithm>

namespace attest {
namespace {

bool on_one_machine(const BenchRecord& a, const BenchRecord& b) {
  return a.context.cpu == b.context.cpu && a.context.host_name == b.context.host_name;
}

/// One thread's rates say nothing of those of two.
bool measured_alike(const BenchRecord& a, const BenchRecord& b) {
  return on_one_machine(a, b) && !a.benchmarks.empty() && !b.benchmarks.empty() &&
         a.benchmarks[0].threads == b.benchmarks[0].threads;
}

}  // namespace

double share_of_best(const BenchSample& sample, const Yardsticks& best) {
  return std::min(sample.fma_f32 / best.fma_f32, sample.integer / best.integer);
}

void settle(std::vector<BenchSample>& samples, const Yardsticks& best, double most_sag) {
  for (BenchSample& sample : samples) {
    sample.yardstick = share_of_best(sample, best);
    sample.dropped = sample.yardstick < 1 - most_sag;
  }
}

void settle_together(std::vector<BenchRecord>& runs) {
  std::vector<Yardsticks> best;
  for (const BenchRecord& run : runs) {
    best.push_back(run.context.yardsticks);
    for (const BenchRecord& other : runs) {
      if (!measured_alike(run, other)) continue;
      best.back().fma_f32 = std::max(best.back().fma_f32, other.context.yardsticks.fma_f32);
      best.back().integer = std::max(best.back().integer, other.context.yardsticks.integer);
    }
  }
  for (std::size_t n = 0; n < runs.size(); ++n)
    if (best[n].fma_f32 > runs[n].context.yardsticks.fma_f32 ||
        best[n].integer > runs[n].context.yardsticks.integer)
      settle(runs[n].benchmarks, best[n]);
}

}  // namespace attest
