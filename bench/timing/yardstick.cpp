// SPDX-License-Identifier: Apache-2.0
#include "bench/timing/yardstick.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/timing/yardstick.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that this is compiled for.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "impls/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// `rounds` times twelve independent FMAs (latency 4, two a cycle). Returns the operations done;
/// `seed` keeps the compiler from knowing the values.
double SpinFma(long rounds, float seed, float* sink) {
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

/// exp of four vectors at a time, each of the last one's result, which tends to 0.567.
double SpinExp(long rounds, float seed, float* sink) {
  constexpr int kChains = 4;
  const hn::ScalableTag<float> d;
  hn::Vec<hn::ScalableTag<float>> x[kChains];
  for (int chain = 0; chain < kChains; ++chain)
    x[chain] = hn::Set(d, seed * static_cast<float>(chain));
  for (long round = 0; round < rounds; ++round)
    for (int chain = 0; chain < kChains; ++chain) x[chain] = hn::Exp(d, hn::Neg(x[chain]));
  auto total = x[0];
  for (int chain = 1; chain < kChains; ++chain) total = hn::Add(total, x[chain]);
  *sink = hn::GetLane(total);
  return 1.0 * kChains * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(SpinFma);
HWY_EXPORT(SpinExp);

constexpr std::size_t kReadBytes = std::size_t{64} << 20, kCopyBytes = std::size_t{32} << 20;

/// What `work(thread)` does in all threads together, per second: it returns how much it did.
template <class Work>
double rate_of(int threads, const Work& work) {
  std::vector<double> done(static_cast<std::size_t>(threads));
  const auto start = std::chrono::steady_clock::now();
  parallel_for(threads, threads,
               [&](std::int64_t thread) { done[static_cast<std::size_t>(thread)] = work(thread); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  double sum = 0;
  for (const double part : done) sum += part;
  return sum / seconds.count();
}

volatile float seed_of_spins = 0.5f;

constexpr int kIntegerChains = 8;

/// `rounds` times eight independent additions. The empty assembly keeps them what they are: no
/// product of `rounds`, no vector.
std::uint64_t spin_integer(long rounds, std::uint64_t seed) {
  std::uint64_t a = seed, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  static_assert(kIntegerChains == 8);
  for (long round = 0; round < rounds; ++round) {
    a += seed, b += seed, c += seed, d += seed, e += seed, f += seed, g += seed, h += seed;
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
  }
  return a + b + c + d + e + f + g + h;
}

/// Of a loop in registers: it is given its rounds, a number to begin with and where to leave one.
double rate_of_spin(int threads, double (*spin)(long, float, float*), long rounds) {
  return rate_of(threads, [=](std::int64_t) {
    float sink = 0;
    const double done = spin(rounds, seed_of_spins, &sink);
    volatile float keep = sink;
    (void)keep;
    return done;
  });
}

/// Memory that stays: a fresh page costs 20 us.
std::vector<std::uint64_t>& buffer(std::int64_t thread, std::size_t bytes) {
  static std::vector<std::vector<std::uint64_t>> all(64);
  std::vector<std::uint64_t>& mine = all[static_cast<std::size_t>(thread) % all.size()];
  if (mine.size() * sizeof(std::uint64_t) < bytes) mine.assign(bytes / sizeof(std::uint64_t), 1);
  return mine;
}

double read_once(std::int64_t thread, std::size_t bytes) {
  const std::vector<std::uint64_t>& words = buffer(thread, bytes);
  std::uint64_t sums[4] = {};
  for (std::size_t i = 0; i + 4 <= words.size(); i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += words[i + lane];
  volatile std::uint64_t sink = sums[0] + sums[1] + sums[2] + sums[3];
  (void)sink;
  return static_cast<double>(words.size() * sizeof(std::uint64_t));
}

}  // namespace

double measure_fma(int threads) {
  return rate_of_spin(
      threads,
      [](long rounds, float seed, float* sink) {
        return HWY_DYNAMIC_DISPATCH(SpinFma)(rounds, seed, sink);
      },
      1'000'000);
}

double measure_integer(int threads) {
  constexpr long kRounds = 2'000'000;
  return rate_of(threads, [](std::int64_t) {
    volatile std::uint64_t keep = spin_integer(kRounds, static_cast<std::uint64_t>(seed_of_spins));
    (void)keep;
    return static_cast<double>(kIntegerChains * kRounds);
  });
}

double measure_exp(int threads) {
  return rate_of_spin(
      threads,
      [](long rounds, float seed, float* sink) {
        return HWY_DYNAMIC_DISPATCH(SpinExp)(rounds, seed, sink);
      },
      100'000);
}

double measure_read(int threads) {
  for (int t = 0; t < threads; ++t) buffer(t, kReadBytes);
  return rate_of(threads, [](std::int64_t thread) { return read_once(thread, kReadBytes); });
}

double measure_copy(int threads) {
  for (int t = 0; t < threads; ++t) buffer(t, 2 * kCopyBytes);
  return rate_of(threads, [](std::int64_t thread) {
    std::uint64_t* const words = buffer(thread, 2 * kCopyBytes).data();
    std::memcpy(words, words + kCopyBytes / sizeof *words, kCopyBytes);
    return 2.0 * kCopyBytes;
  });
}

void chill_caches() {
  static const std::size_t bytes = std::max(
      kReadBytes, 2 * static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L)));
  read_once(0, bytes);
}

}  // namespace attest
#endif
