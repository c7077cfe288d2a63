// SPDX-License-Identifier: Apache-2.0
// Times of kernels, each only after the oracle agreed and again after the last sample.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/bench_record.hpp"
#include "attest/problem.hpp"
#include "bench/timing/settle.hpp"
#include "harness/subject.hpp"

namespace attest {

struct BenchSubject {
  std::string name;  ///< as samples are called; two of the same kernel have names of their own
  std::shared_ptr<Subject> subject;
};

struct BenchOptions {
  int threads = 1;
  int samples = 100;             ///< of each kernel and case
  double sample_seconds = 0.01;  ///< at least; calls are repeated until then
  double case_seconds = 30;      ///< of one kernel: a slow one gets fewer samples, at least 5
  bool cold = false;             ///< one call a sample, its tensors in no cache
  double most_sag = kMostSag;
  const std::atomic<bool>* interrupted = nullptr;
};

struct BenchProgress {
  std::size_t done = 0, all = 0;  ///< kernels and cases
  double seconds = 0;             ///< so far
  std::string now;                ///< "chunked, attention.forward lq=1024 ..."
};

/// What came of one case.
struct TimedCase {
  std::vector<BenchSample> samples;
  std::vector<BenchRecord::Refused> refused;
};

/// Calls of all kernels in turn (A B C A B C ...), each between two yardsticks, until each has its
/// samples, or four times as many where yardsticks sag (twelve times within case_seconds). `best`
/// holds the best rates seen so far, which grow. A kernel that the oracle does not agree with,
/// before or after, gets no sample: `refused` says why. settle() follows.
TimedCase time_case(const std::vector<BenchSubject>& subjects, const AttentionProblem& problem,
                    const BenchOptions& options, Yardsticks& best);

}  // namespace attest
