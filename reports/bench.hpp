// SPDX-License-Identifier: Apache-2.0
// Measured times and their changes, from and to text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/bench_record.hpp"
#include "attest/result.hpp"
#include "reports/table.hpp"

namespace attest {

/// A record of 100,000 samples takes 40 MB.
inline constexpr std::size_t kMaxBenchBytes = std::size_t{64} << 20;

/// Strict, as reports/reader.hpp. Times and yardsticks are above 0 and finite.
Result<BenchRecord> read_bench(std::string_view json);
Result<BenchRecord> read_bench_file(const std::string& path);
std::string bench_json(const BenchRecord& record);

/// What came of one case, as a line of a journal.
struct BenchLine {
  std::string case_line;
  std::vector<BenchSample> benchmarks;
  std::vector<BenchRecord::Refused> refused;
};
std::string bench_line(const BenchLine& line);
Result<BenchLine> read_bench_line(std::string_view json);
/// The first line of a journal: everything that two runs must share to be the same run.
std::string bench_header(const BenchContext& context, const std::vector<std::string>& what);

/// Of every case and kernel the median of the samples that count, and what follows from it.
Table bench_table(const BenchRecord& record);
std::string bench_screen(const BenchRecord& record);

/// One table for one pair of records; `titles` name them.
Table change_table(const std::vector<BenchChange>& changes, const std::string& old_name,
                   const std::string& new_name);
/// "2 slower, 1 faster, 9 same, 1 unclear"
std::string change_summary(const std::vector<BenchChange>& changes);

/// Medians of every name in every record, and their ratio to the first record.
Table runs_table(const std::vector<std::string>& titles, const std::vector<std::string>& names,
                 const std::vector<std::vector<double>>& medians);

/// "1.23 ms", three digits.
std::string time_text(double seconds);

}  // namespace attest
