// SPDX-License-Identifier: Apache-2.0
#include "reports/memory_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

// Pixels.
constexpr double kLeft = 80, kTop = 40, kWide = 460, kHigh = 320, kRight = 190, kBottom = 56;
// Okabe and Ito's colours that are seen on white, told apart without colour by their labels.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"};

/// One axis: where a value lies between the least and the largest, 0 to 1, by logarithms.
struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void take(double value) { low = std::min(low, value), high = std::max(high, value); }
  double place(double value) const {
    return low < high ? std::log(value / low) / std::log(high / low) : 0.5;
  }
};

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, xml_text(text));
}

std::string rule(double x0, double y0, double x1, double y1, const char* colour) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" fill=\"none\"/>\n", x0,
                     y0, x1, y1, colour);
}

/// Labels that would overlap move down.
std::vector<double> spread(std::vector<std::pair<double, std::size_t>> wanted) {
  constexpr double kStep = 16;
  std::sort(wanted.begin(), wanted.end());
  std::vector<double> placed(wanted.size());
  double last = -kStep;
  for (const auto& [y, line] : wanted) placed[line] = last = std::max(y, last + kStep);
  return placed;
}

}  // namespace

std::vector<MemoryLine> memory_lines(const BenchRecord& record) {
  /// What is one line: a kernel, and its case at length 1.
  struct Kind {
    std::string subject, line;
    Operation operation;
    std::map<double, double> points;
  };
  std::vector<Kind> kinds;
  std::set<Operation> operations;
  for (const BenchSeries& series : series_of(record)) {
    const BenchSample& sample = *series.sample;
    const Result<AttentionProblem> parsed = parse_case(sample.case_line);
    if (!parsed || !(sample.extra_bytes > 0)) continue;
    AttentionProblem problem = *parsed;
    const auto length = static_cast<double>(std::max(problem.q_len, problem.kv_len));
    problem.q_len = std::min<std::int64_t>(problem.q_len, 1), problem.kv_len = 1;
    const std::string line = print_case(problem);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& known) {
      return known.subject == sample.subject && known.line == line;
    });
    if (kind == kinds.end())
      kind = kinds.insert(kinds.end(), {sample.subject, line, problem.operation, {}});
    kind->points[length] = sample.extra_bytes;
    operations.insert(problem.operation);
  }
  std::vector<MemoryLine> lines;
  for (const Kind& kind : kinds) {
    if (kind.points.size() < 2) continue;
    MemoryLine line;
    line.title = plain(kind.subject);
    if (operations.size() > 1) line.title += ", " + std::string(enum_name(kind.operation));
    line.points.assign(kind.points.begin(), kind.points.end());
    lines.push_back(std::move(line));
  }
  return lines;
}

double growth(const std::vector<std::pair<double, double>>& points) {
  const auto& [length, bytes] = points[points.size() - 2];
  const auto& [last_length, last_bytes] = points.back();
  return std::log(last_bytes / bytes) / std::log(last_length / length);
}

std::string memory_svg(const std::vector<MemoryLine>& lines) {
  Axis across, up;
  std::set<double> lengths;
  for (const MemoryLine& line : lines)
    for (const auto& [length, bytes] : line.points)
      across.take(length), up.take(bytes), lengths.insert(length);
  const auto x = [&](double length) { return kLeft + kWide * across.place(length); };
  const auto y = [&](double bytes) { return kTop + kHigh * (1 - up.place(bytes)); };
  const double width = kLeft + kWide + kRight, height = kTop + kHigh + kBottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"peak memory against length\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
      width, height);
  svg += text_at(kLeft + kWide / 2, 20, "middle", "Peak memory beyond the tensors",
                 " font-size=\"14\"");
  svg += text_at(kLeft + kWide / 2, height - 14, "middle", "L, queries and keys");
  for (const double length : lengths) {
    svg += rule(x(length), kTop, x(length), kTop + kHigh, "#ddd");
    svg += text_at(x(length), kTop + kHigh + 18, "middle", fmt::format("{:.0f}", length));
  }
  // Powers of 4 that the bytes reach.
  for (int power = 0; std::ldexp(1.0, 2 * power) <= up.high; ++power) {
    const double tick = std::ldexp(1.0, 2 * power);
    if (tick < up.low) continue;
    svg += rule(kLeft, y(tick), kLeft + kWide, y(tick), "#ddd");
    svg += text_at(kLeft - 6, y(tick) + 4, "end", bytes_text(static_cast<std::int64_t>(tick)));
  }
  std::vector<std::pair<double, std::size_t>> ends;
  for (const MemoryLine& line : lines) ends.emplace_back(y(line.points.back().second), ends.size());
  const std::vector<double> label_y = spread(std::move(ends));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const MemoryLine& line = lines[i];
    const char* colour = kColours[i % std::size(kColours)];
    std::string path;
    for (const auto& [length, bytes] : line.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(length), y(bytes));
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}</title></circle>\n",
          x(length), y(bytes), colour,
          xml_text(fmt::format("{}, L = {:.0f}: {}", line.title, length,
                               bytes_text(static_cast<std::int64_t>(bytes)))));
    }
    svg += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"1.5\" fill=\"none\"/>\n", path,
                       colour);
    svg += text_at(x(line.points.back().first) + 10, label_y[i] + 4, "start",
                   fmt::format("{}: L^{:.2f}", line.title, growth(line.points)),
                   fmt::format(" fill=\"{}\"", colour));
  }
  return svg + "</svg>\n";
}

}  // namespace attest
