// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or times that read back as themselves and can be shown,
// alone and beside others; and the same of a line of a journal.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "reports/bench.hpp"
#include "reports/html_report.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto line = read_bench_line(text);
  if (line)
    require(bench_line(*read_bench_line(bench_line(*line))) == bench_line(*line));
  else
    require_plain_refusal(line);
  const auto record = read_bench(text);
  if (!record) {
    require_plain_refusal(record);
    return 0;
  }
  require(bench_json(*read_bench(bench_json(*record))) == bench_json(*record));
  require(!bench_screen(*record).empty());
  ReportDocuments documents;
  documents.benches = {*record};
  require(!html_report(documents).empty() && !markdown_report(documents).empty());
  return 0;
}
