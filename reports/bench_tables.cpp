// SPDX-License-Identifier: Apache-2.0
// Times and their changes as tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/bench.hpp"
#include "reports/cost.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

/// "+10.2 %"
std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

std::string p_text(double p) { return p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", p); }

}  // namespace

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds >= 1e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  return fmt::format("{:.3g} ns", seconds * 1e9);
}

std::string change_summary(const std::vector<BenchChange>& changes) {
  std::string text;
  for (const Change change : {Change::slower, Change::faster, Change::same, Change::unclear}) {
    const auto seen = std::count_if(changes.begin(), changes.end(),
                                    [&](const BenchChange& one) { return one.change == change; });
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", seen, name(change));
  }
  return text;
}

Table change_table(const std::vector<BenchChange>& changes, const std::string& old_name,
                   const std::string& new_name) {
  Table table{"",
              {{"benchmark", false},
               {"verdict", false},
               {plain(old_name)},
               {plain(new_name)},
               {"change"},
               {"95 % interval"},
               {"p"},
               {"samples"},
               {"would settle it", false}},
              {}};
  for (const BenchChange& one : changes)
    table.rows.push_back(
        {plain(one.name), std::string(name(one.change)), time_text(one.old_seconds),
         time_text(one.new_seconds), percent(one.ratio),
         fmt::format("{} to {}", percent(one.low), percent(one.high)), p_text(one.p_value),
         fmt::format("{}, {}", one.old_samples, one.new_samples),
         one.change != Change::unclear ? ""
         : one.samples_needed > 0      ? fmt::format("{} samples of each", one.samples_needed)
                                       : "no number of samples"});
  return table;
}

Table bench_table(const BenchRecord& record) {
  Table table{"",
              {{"case", false},
               {"kernel", false},
               {"time"},
               {"spread"},
               {"FLOP/s"},
               {"of FMA"},
               {"bytes/s"},
               {"peak extra"},
               {"to first"},
               {"samples"},
               {"dropped"}},
              {}};
  std::string last_case;
  double first = 0;
  for (const BenchSeries& series : series_of(record)) {
    const BenchSample& one = *series.sample;
    const bool new_case = one.case_line != last_case;
    std::vector<double> times = series.seconds;
    std::sort(times.begin(), times.end());
    const double middle =
        times.empty() ? 0 : (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
    if (new_case) first = middle;
    const double peak = record.context.yardsticks.fma_f32;
    std::vector<std::string> row{new_case ? plain(one.case_line) : "", plain(one.subject)};
    last_case = one.case_line;
    if (times.empty()) {
      row.insert(row.end(), 7, "-");
    } else {
      const double low = times[times.size() / 4], high = times[times.size() * 3 / 4];
      row.push_back(time_text(middle));
      row.push_back(fmt::format("{:.1f} %", 100 * (high - low) / middle));
      row.push_back(si_text(one.flops / middle));
      row.push_back(peak > 0 ? fmt::format("{:.1f} %", 100 * one.flops / middle / peak) : "-");
      row.push_back(si_text(one.bytes / middle));
      row.push_back(one.extra_bytes > 0 ? bytes_text(static_cast<std::int64_t>(one.extra_bytes))
                                        : "-");
      row.push_back(new_case || first <= 0 ? "" : fmt::format("{:.3g}", middle / first));
    }
    row.push_back(std::to_string(times.size()));
    row.push_back(std::to_string(series.dropped));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string bench_screen(const BenchRecord& record) {
  const Yardsticks& fast = record.context.yardsticks;
  std::string text = fmt::format(
      "{}: FMA {} FLOP/s, integer {} 1/s, exp {} 1/s, read {} bytes/s, copy {} bytes/s\n\n{}",
      plain(record.context.cpu), si_text(fast.fma_f32), si_text(fast.integer),
      si_text(fast.exp_f32), si_text(fast.read_bytes), si_text(fast.copy_bytes),
      terminal_table(bench_table(record)));
  if (record.null_comparison) {
    const BenchChange& null = *record.null_comparison;
    text +=
        fmt::format("\n{} against itself: {}, {} ({} to {})\n", plain(null.name), name(null.change),
                    percent(null.ratio), percent(null.low), percent(null.high));
  }
  for (const BenchRecord::Refused& refused : record.refused)
    text += fmt::format("\nno time: {} on {}: {}", plain(refused.subject), plain(refused.case_line),
                        plain(refused.why));
  return text + (record.refused.empty() ? "" : "\n");
}

Table runs_table(const std::vector<std::string>& titles, const std::vector<std::string>& names,
                 const std::vector<std::vector<double>>& medians) {
  Table table{"", {{"benchmark", false}}, {}};
  for (std::size_t run = 0; run < titles.size(); ++run) {
    table.columns.push_back({plain(titles[run])});
    if (run > 0) table.columns.push_back({"ratio"});
  }
  for (std::size_t n = 0; n < names.size(); ++n) {
    std::vector<std::string> row{plain(names[n])};
    for (std::size_t run = 0; run < titles.size(); ++run) {
      const double here = medians[n][run], first = medians[n][0];
      row.push_back(here > 0 ? time_text(here) : "-");
      if (run > 0) row.push_back(here > 0 && first > 0 ? fmt::format("{:.3g}", here / first) : "-");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace attest
