// SPDX-License-Identifier: Apache-2.0
#include "attest/text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

namespace attest {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_printable(char c) { return c >= ' ' && c <= '~'; }

template <class T>
std::optional<T> read_whole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::vector<Word> split_words(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < line.size();) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back({line.substr(at, end - at), at + 1});
    at = end;
  }
  return words;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines)
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return lines;
}

std::optional<std::size_t> unprintable_column(std::string_view line) {
  const auto at =
      std::find_if(line.begin(), line.end(), [](char c) { return !is_printable(c) && c != '\t'; });
  if (at == line.end()) return std::nullopt;
  return static_cast<std::size_t>(at - line.begin()) + 1;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string shown = "'";
  for (char c : text.substr(0, kMost)) shown += is_printable(c) ? c : '?';
  if (text.size() > kMost) shown += "...";
  return shown + "'";
}

std::optional<std::int64_t> read_integer(std::string_view text) {
  return read_whole<std::int64_t>(text);
}

std::optional<std::uint64_t> read_unsigned(std::string_view text) {
  return read_whole<std::uint64_t>(text);
}

std::optional<double> read_number(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "inf") return kInfinity;
  if (text == "-inf") return -kInfinity;
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  std::string_view magnitude = text;
  const bool negative = magnitude.starts_with('-');
  if (negative) magnitude.remove_prefix(1);
  const bool hex = magnitude.starts_with("0x");
  if (hex) magnitude.remove_prefix(2);
  // from_chars would also take "-", "nan(...)" and "infinity" here.
  if (magnitude.empty() || magnitude.front() == '-' || magnitude.front() == 'n' ||
      magnitude.front() == 'N' || magnitude.front() == 'i' || magnitude.front() == 'I')
    return std::nullopt;
  double value = 0;
  const char* end = magnitude.data() + magnitude.size();
  const auto [stop, error] = std::from_chars(
      magnitude.data(), end, value, hex ? std::chars_format::hex : std::chars_format::general);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace attest
