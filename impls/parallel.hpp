// SPDX-License-Identifier: Apache-2.0
// A loop over independent items on several threads. Which thread runs an item never decides what it
// computes, so results do not depend on the number of threads.
//
// Threads live for one loop: starting one costs about 20 us, and a plug-in that keeps none can be
// unloaded at any time. std::thread and not OpenMP, whose runtime ThreadSanitizer cannot see.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace attest {

/// Calls body(i) for every i in [0, count), each once, on at most num_threads threads including the
/// caller's. Items are handed out in order, so put the expensive ones first. Rethrows the first
/// exception after all threads have ended; items not yet begun are then left out.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t num_threads, Body&& body) {
  const std::int64_t workers = std::min(num_threads, count);
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(workers - 1));
  try {
    for (std::int64_t t = 1; t < workers; ++t) threads.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads to be had: those there are do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace attest
