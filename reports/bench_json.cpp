// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "reports/bench.hpp"
#include "reports/bench_fields.hpp"
#include "reports/json_document.hpp"
#include "reports/json_writer.hpp"

namespace attest {
namespace {

constexpr json::DocumentKind kKind{kBenchSchema, "bench", kMaxBenchBytes};

/// What statistics cannot do with.
std::string bench_error(const BenchRecord& record) {
  for (std::size_t i = 0; i < record.benchmarks.size(); ++i) {
    const BenchSample& sample = record.benchmarks[i];
    const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
    if (!positive(sample.real_time))
      return fmt::format("bench.benchmarks[{}].real_time: must be above 0", i);
    for (const auto& [key, value] :
         {std::pair{"yardstick", sample.yardstick}, std::pair{"fma_f32", sample.fma_f32},
          std::pair{"integer", sample.integer}})
      if (!positive(value)) return fmt::format("bench.benchmarks[{}].{}: must be above 0", i, key);
  }
  return "";
}

}  // namespace

Result<BenchRecord> read_bench(std::string_view text) {
  Result<BenchRecord> record = json::read_document<BenchRecord>(text, kKind);
  if (!record) return record;
  if (const std::string error = bench_error(*record); !error.empty()) return Error{error};
  return record;
}

Result<BenchRecord> read_bench_file(const std::string& path) {
  return json::read_file_with(read_bench, path, kKind);
}

std::string bench_json(const BenchRecord& record) {
  return json::text_of(json::to_json(record)) + '\n';
}

std::string bench_line(const BenchLine& line) { return json::line_of(json::to_json(line)); }

Result<BenchLine> read_bench_line(std::string_view text) {
  const json::Json value = json::Json::parse(text, nullptr, false);
  if (value.is_discarded()) return Error{"not JSON, or cut short"};
  std::string error;
  BenchLine line;
  json::read(json::Place{value, "case", error}, line);
  if (!error.empty()) return Error{error};
  return line;
}

std::string bench_header(const BenchContext& context, const std::vector<std::string>& what) {
  json::OrderedJson header;
  header["journal"] = kBenchSchema;
  header["version"] = context.tool_version;
  header["commit"] = context.commit;
  header["cpu"] = context.cpu;
  header["environment"] = context.environment;
  header["run"] = what;
  return json::line_of(header);
}

}  // namespace attest
