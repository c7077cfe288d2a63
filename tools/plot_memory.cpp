// SPDX-License-Identifier: Apache-2.0
// attest plot memory: how the memory beyond the tensors grows with length.
#include "reports/bench.hpp"
#include "reports/memory_plot.hpp"
#include "reports/text.hpp"
#include "tools/plot.hpp"

namespace attest {

ExitCode plot_memory(const Arguments& arguments) {
  const std::string path = arguments.value("--times");
  if (path.empty()) throw CommandError("plot memory wants --times FILE");
  const Result<BenchRecord> record = read_bench_file(path);
  if (!record) throw CommandError(record.error());
  const std::vector<MemoryLine> lines = memory_lines(*record);
  if (lines.empty())
    throw CommandError(plain(path) + ": holds no kernel whose memory was measured at two lengths");
  write_picture(arguments, memory_svg(lines));
  return ExitCode::conformant;
}

}  // namespace attest
