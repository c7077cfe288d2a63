// SPDX-License-Identifier: Apache-2.0
#include "impls/parallel.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>

namespace attest {
namespace {

TEST(ParallelFor, RunsEveryItemOnce) {
  for (const std::int64_t threads : {1, 2, 7})
    for (const std::int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      parallel_for(count, threads, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      for (const auto& times : runs) EXPECT_EQ(times, 1) << count << " on " << threads;
    }
}

TEST(ParallelFor, OneThreadIsTheCallers) {
  parallel_for(3, 1, [caller = std::this_thread::get_id()](std::int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ParallelFor, UsesNoMoreThreadsThanAsked) {
  std::set<std::thread::id> seen;
  std::mutex mutex;
  parallel_for(200, 3, [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_LE(seen.size(), 3u);
}

TEST(ParallelFor, RethrowsAfterAllThreadsEnded) {
  for (const std::int64_t threads : {1, 4}) {
    std::atomic<int> running{0};
    EXPECT_THROW(parallel_for(50, threads,
                              [&](std::int64_t i) {
                                ++running;
                                const bool fail = i == 7;
                                --running;
                                if (fail) throw std::runtime_error("item 7");
                              }),
                 std::runtime_error);
    EXPECT_EQ(running, 0);
  }
}

}  // namespace
}  // namespace attest
