// SPDX-License-Identifier: Apache-2.0
// Measured times as plain data. The JSON form is a superset of Google Benchmark's, so that tools
// for that read it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

inline constexpr const char* kBenchSchema = "attest.bench/1";

/// How fast the machine was, by loops of our own: the best of the run.
struct Yardsticks {
  double fma_f32 = 0;     ///< FLOP/s of the threads together
  double read_bytes = 0;  ///< bytes/s from memory
  double copy_bytes = 0;  ///< bytes/s read and written
  double exp_f32 = 0;     ///< 1/s
  double integer = 0;     ///< additions of registers a second, all that the core can issue
};

struct BenchContext {
  std::string date;  ///< ISO 8601
  std::string host_name;
  std::string executable;
  std::int64_t num_cpus = 0;
  std::string library_build_type = "release";
  // Beyond Google Benchmark's:
  std::string tool_version, commit, command_line;
  std::string cpu, os, compiler, flags;
  std::map<std::string, std::string> environment;  ///< what changes speed: OMP_NUM_THREADS, ...
  std::string power_governor;                      ///< "" where the machine does not say
  Yardsticks yardsticks;
};

/// One sample: `iterations` calls in a row.
struct BenchSample {
  std::string name;  ///< subject/operation/case: what two files have in common
  std::int64_t family_index = 0, per_family_instance_index = 0;
  std::string run_name;
  std::string run_type = "iteration";
  std::int64_t repetitions = 0, repetition_index = 0, threads = 1, iterations = 0;
  double real_time = 0, cpu_time = 0;  ///< of one call
  std::string time_unit = "ns";
  // Beyond Google Benchmark's:
  std::string subject, case_line;
  double fma_f32 = 0, integer = 0;  ///< yardsticks: the slower of the loops before and after
  double yardstick = 1;  ///< the lesser of their shares of the run's best; 1 in a journal, before
                         ///< that is known
  bool dropped = false;  ///< the yardstick sagged: not to be counted
  double flops = 0, bytes = 0, extra_bytes = 0;  ///< of one call; extra: measured, 0 where not
};

/// How one benchmark compares between two sets of samples.
enum class Change : std::uint8_t { faster, slower, same, unclear };

constexpr std::string_view name(Change change) {
  switch (change) {
    case Change::faster: return "faster";
    case Change::slower: return "slower";
    case Change::same: return "same";
    case Change::unclear: return "unclear";
  }
  return "?";
}

constexpr std::optional<Change> parse_change(std::string_view text) {
  for (const Change change : {Change::faster, Change::slower, Change::same, Change::unclear})
    if (name(change) == text) return change;
  return std::nullopt;
}

struct BenchChange {
  std::string name;
  Change change = Change::unclear;
  double old_seconds = 0, new_seconds = 0;  ///< medians of one call
  double ratio = 1, low = 1, high = 1;      ///< new / old, and its 95 % interval
  double p_value = 1;                       ///< of the rank test
  std::int64_t old_samples = 0, new_samples = 0;
  std::int64_t samples_needed = 0;  ///< where unclear: of each side, to settle it; 0: cannot say
};

struct BenchRecord {
  std::string schema = kBenchSchema;
  BenchContext context;
  std::vector<BenchSample> benchmarks;
  /// The first kernel against itself, calls in turn, where several were timed: what a difference
  /// between two of them must be larger than.
  std::optional<BenchChange> null_comparison;
  /// Subjects and cases that got no time, and why: the oracle did not agree, it is not served.
  struct Refused {
    std::string subject, case_line, why;
  };
  std::vector<Refused> refused;
};

/// The samples of one name: one kernel on one case.
struct BenchSeries {
  const BenchSample* sample = nullptr;  ///< the first of them
  std::vector<double> seconds;  ///< of a call at full speed, real_time times yardstick, of those
                                ///< that were not dropped
  std::int64_t dropped = 0;
};

/// In the order in which names first stand; of samples of `record`, which must outlive it.
std::vector<BenchSeries> series_of(const BenchRecord& record);

}  // namespace attest
