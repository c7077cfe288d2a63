// SPDX-License-Identifier: Apache-2.0
#include "harness/expectations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "attest/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kMostPatternBytes = 4096;
constexpr std::string_view kForm = "status requirement case-pattern reason until why";

/// "2027-01-31", a day that exists.
bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const auto year = read_unsigned(text.substr(0, 4));
  const auto month = read_unsigned(text.substr(5, 2));
  const auto day = read_unsigned(text.substr(8, 2));
  if (!year || !month || !day) return false;
  return std::chrono::year_month_day(std::chrono::year(static_cast<int>(*year)),
                                     std::chrono::month(static_cast<unsigned>(*month)),
                                     std::chrono::day(static_cast<unsigned>(*day)))
      .ok();
}

struct LineError {
  std::size_t column;
  std::string message;
};

std::optional<LineError> read_words(const std::vector<Word>& words,
                                    const std::vector<std::string>& known_requirements,
                                    std::string_view line, Expectation& entry) {
  if (words.size() < 6)
    return LineError{words.front().column,
                     fmt::format("{} words; an expectation is {}", words.size(), kForm)};
  const Word &status = words[0], &requirement = words[1], &pattern = words[2], &reason = words[3],
             &until = words[4];
  if (status.text != "fail" && status.text != "warn")
    return LineError{status.column, quote(status.text) + " is neither fail nor warn"};
  if (std::find(known_requirements.begin(), known_requirements.end(), requirement.text) ==
      known_requirements.end())
    return LineError{requirement.column, quote(requirement.text) + " is no requirement"};
  if (pattern.text.size() > kMostPatternBytes)
    return LineError{pattern.column, fmt::format("the pattern has {} bytes; at most {} are read",
                                                 pattern.text.size(), kMostPatternBytes)};
  const auto known_reason = parse_reason(reason.text);
  if (!known_reason) return LineError{reason.column, quote(reason.text) + " is no reason"};
  if (until.text != "-" && !is_date(until.text))
    return LineError{until.column, quote(until.text) + " is neither a date (YYYY-MM-DD) nor -"};
  entry.status = status.text == "fail" ? Verdict::fail : Verdict::warn;
  entry.requirement = requirement.text;
  entry.pattern = pattern.text;
  entry.reason = *known_reason;
  entry.until = until.text;
  const Word& last = words.back();
  const std::size_t begin = words[5].column - 1;
  entry.why = line.substr(begin, last.column - 1 + last.text.size() - begin);
  return std::nullopt;
}

/// The same failures would meet both entries.
bool same_key(const Expectation& a, const Expectation& b) {
  return a.status == b.status && a.requirement == b.requirement && a.pattern == b.pattern &&
         a.reason == b.reason;
}

}  // namespace

Result<std::vector<Expectation>> parse_expectations(
    std::string_view text, const std::vector<std::string>& known_requirements) {
  if (text.size() > kMostTextBytes)
    return Error{fmt::format("{} bytes long; at most {} are read", text.size(), kMostTextBytes)};
  std::vector<Expectation> entries;
  int number = 0;
  for (std::string_view line : split_lines(text)) {
    ++number;
    const auto error = [number](std::size_t column, std::string_view what) {
      return Error{fmt::format("line {}, column {}: {}", number, column, what)};
    };
    line = line.substr(0, line.find('#'));
    if (const auto column = unprintable_column(line))
      return error(*column, "a byte that is not printable ASCII");
    const auto words = split_words(line);
    if (words.empty()) continue;
    Expectation entry;
    if (const auto wrong = read_words(words, known_requirements, line, entry))
      return error(wrong->column, wrong->message);
    entry.line_number = number;
    entry.line = line.substr(words.front().column - 1,
                             words.back().column + words.back().text.size() - words.front().column);
    for (const Expectation& earlier : entries)
      if (same_key(earlier, entry))
        return error(words.front().column,
                     fmt::format("says the same as line {}", earlier.line_number));
    entries.push_back(std::move(entry));
  }
  return entries;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Only the last '*' ever needs to give way: what stands before it is matched already.
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace attest
