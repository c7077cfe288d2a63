// SPDX-License-Identifier: Apache-2.0
#include "reports/verdict_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/summary.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kColumns = 9;
using Row = std::array<std::string, kColumns>;

const Row kHead = {"subject", "verdict", "cases", "failing", "refused",
                   "dtypes",  "err/T",   "suite", "seconds"};
constexpr std::array<bool, kColumns> kRight = {false, false, true,  true, true,
                                               false, true,  false, true};

/// The largest err/T of the run; a NaN counts as larger than all.
std::string largest_ratio(const Record& record) {
  double largest = -1;
  for (const Ratios& ratios : record.ratios)
    if (ratios.cases > 0 && !(ratios.max <= largest)) largest = ratios.max;
  return largest == -1 ? "-" : ratio_text(largest);
}

constexpr std::size_t kLongest = 40;  // columns of one cell

Row row_of(const Record& record) {
  return {shorten(subject_name(record), kLongest),
          std::string(verdict_word(record.verdict)),
          grouped(record.counts.total()),
          grouped(record.counts.failures()),
          grouped(record.counts.unsupported),
          shorten(join(dtypes_of(record), " "), kLongest),
          largest_ratio(record),
          shorten(plain(record.suite), kLongest),
          fmt::format("{:.1f}", record.wall_seconds)};
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string blanks(width - std::min(width, columns(text)), ' ');
  return right ? blanks + text : text + blanks;
}

std::string terminal_table(const std::vector<Row>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], columns(row[i]));
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i)
      line += (i == 0 ? "" : "  ") + padded(row[i], widths[i], kRight[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string markdown_table(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += '|';
    for (const std::string& cell : rows[i]) text += ' ' + markdown_escape(cell) + " |";
    text += '\n';
    if (i > 0) continue;
    text += '|';
    for (bool right : kRight) text += right ? "---:|" : "---|";
    text += '\n';
  }
  return text;
}

}  // namespace

std::string verdict_table(const std::vector<Record>& records, TableStyle style) {
  std::vector<Row> rows{kHead};
  for (const Record& record : records) rows.push_back(row_of(record));
  return style == TableStyle::terminal ? terminal_table(rows) : markdown_table(rows);
}

}  // namespace attest
