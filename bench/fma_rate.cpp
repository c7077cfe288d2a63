// SPDX-License-Identifier: Apache-2.0
#include "bench/fma_rate.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_rate.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that this is compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <ctime>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

/// Runs `rounds` times twelve independent FMAs (latency 4, two a cycle) and returns the operations
/// done; `seed` keeps the compiler from knowing the values.
double Spin(long rounds, float seed, float* sink) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, seed);
  hn::Vec<hn::ScalableTag<float>> sum[kChains];
  for (int chain = 0; chain < kChains; ++chain) sum[chain] = hn::Set(d, static_cast<float>(chain));
  for (long round = 0; round < rounds; ++round)
    for (int chain = 0; chain < kChains; ++chain)
      sum[chain] = hn::MulAdd(sum[chain], factor, factor);
  auto total = sum[0];
  for (int chain = 1; chain < kChains; ++chain) total = hn::Add(total, sum[chain]);
  *sink = hn::GetLane(total);
  return 2.0 * kChains * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(Spin);

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double measure() {
  volatile float seed = 0.5f;
  float sink = 0;
  double best = 0;
  for (int stretch = 0; stretch < 10; ++stretch) {
    const double start = cpu_seconds();
    const double operations = HWY_DYNAMIC_DISPATCH(Spin)(1'000'000, seed, &sink);
    best = std::max(best, operations / (cpu_seconds() - start));
  }
  seed = sink;
  return best;
}

}  // namespace

double fma_rate() {
  static const double rate = measure();
  return rate;
}

}  // namespace attest
#endif
