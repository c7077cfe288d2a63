// SPDX-License-Identifier: Apache-2.0
// attest compare: whether kernels became faster or slower.
#include "bench/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "attest/text.hpp"
#include "bench/compare/statistics.hpp"
#include "bench/timing/settle.hpp"
#include "reports/bench.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

/// "5" or "0.5%": above 0, at most 100.
double read_percent(const Arguments& arguments) {
  const std::string text = arguments.value("--threshold", "5");
  const bool has_sign = !text.empty() && text.back() == '%';
  const auto percent = read_number(std::string_view(text).substr(0, text.size() - has_sign));
  if (!percent || !(*percent > 0 && *percent <= 100))
    throw CommandError("--threshold: '" + plain(text) + "' is no percentage above 0 and up to 100");
  return *percent / 100;
}

/// Every name of every record once, in their order, with its median in each.
Table table_of(const std::vector<BenchRecord>& runs, const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  std::map<std::string, std::size_t> places;
  std::vector<std::vector<double>> medians;  // 0: no time
  for (std::size_t run = 0; run < runs.size(); ++run)
    for (const BenchSeries& series : series_of(runs[run])) {
      const auto [place, is_new] = places.emplace(series.sample->name, names.size());
      if (is_new) {
        names.push_back(series.sample->name);
        medians.emplace_back(runs.size(), 0);
      }
      if (!series.seconds.empty()) medians[place->second][run] = median(series.seconds);
    }
  return runs_table(paths, names, medians);
}

ExitCode run(const Arguments& arguments) {
  const std::vector<std::string>& paths = arguments.positionals.at("RECORD");
  if (paths.size() < 2) throw CommandError("compare wants two records of times, or more");
  CompareOptions options;
  options.threshold = read_percent(arguments);
  std::vector<BenchRecord> runs;
  for (const std::string& path : paths) {
    Result<BenchRecord> record = read_bench_file(path);
    if (!record) throw CommandError(record.error());
    runs.push_back(std::move(*record));
  }
  settle_together(runs);

  Table table;
  ExitCode code = ExitCode::conformant;
  std::string summary;
  if (runs.size() > 2) {
    table = table_of(runs, paths);
  } else {
    const std::vector<BenchChange> changes = compare_runs(runs[0], runs[1], options);
    if (changes.empty())
      throw CommandError(plain(paths[0]) + " and " + plain(paths[1]) +
                         " have no benchmark in common");
    table = change_table(changes, paths[0], paths[1]);
    summary = change_summary(changes) + '\n';
    // One that is gone may have failed its check: as bad as a slow one.
    const auto lost = static_cast<std::int64_t>(names_of(runs[0]).size() - changes.size());
    if (lost > 0)
      summary += fmt::format("{} of {} {} no time in {}\n", counted(lost, "benchmark"),
                             plain(paths[0]), lost == 1 ? "has" : "have", plain(paths[1]));
    if (lost > 0 || std::any_of(changes.begin(), changes.end(), [](const BenchChange& change) {
          return change.change == Change::slower;
        }))
      code = ExitCode::failed;
  }
  fmt::print("{}{}", terminal_table(table), summary);
  write_output(arguments.value("--markdown"), markdown_table(table) + '\n' + summary);
  return code;
}

ATTEST_COMMAND(
    compare,
    {
        .name = "compare",
        .summary = "whether kernels became faster or slower between records of attest bench",
        .examples =
            "Examples:\n"
            "  attest compare old.json new.json              exit 1 where something is slower\n"
            "  attest compare old.json new.json --threshold 2\n"
            "  attest compare laptop.json server.json gpu.json   one table\n"
            "slower, faster: the 95 % interval of the ratio of medians (bootstrap) excludes 1, a "
            "rank test agrees,\nand the ratio is beyond the threshold. same: the interval lies "
            "within the threshold. unclear: neither, with\nthe number of samples that would settle "
            "it. Exit codes: 0 nothing is slower, 1 something is or "
            "has no time any more, 2 usage.",
        .positionals = {{"RECORD",
                         "records of times (attest bench --json); the first is the old one", true,
                         true}},
        .options = {{"--threshold", "PERCENT", "what is smaller is no change; default 5"},
                    {"--markdown", "FILE", "write the table there"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
