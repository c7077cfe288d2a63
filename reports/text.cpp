// SPDX-License-Identifier: Apache-2.0
#include "reports/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr char32_t kReplacement = 0xfffd;

bool is_continuation(std::string_view text, std::size_t position) {
  return position < text.size() && (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80;
}

/// C0 and C1 controls and DEL; also the bidirectional overrides, which can make a line read as
/// another.
bool acts_on_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
}

void append_visible(std::string& text, char32_t c) {
  const auto number = static_cast<std::uint32_t>(c);
  if (!acts_on_terminal(c))
    append_utf8(text, c);
  else
    text += number < 0x100 ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  if (lead < 0x80) return lead;
  const int length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4) return kReplacement;
  char32_t value = lead & (0x7fu >> length);
  const std::size_t start = position;
  for (int i = 1; i < length; ++i) {
    if (!is_continuation(text, position)) {
      position = start;
      return kReplacement;
    }
    value = value << 6 | (static_cast<unsigned char>(text[position++]) & 0x3fu);
  }
  const char32_t smallest = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (value < smallest || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
    position = start;
    return kReplacement;
  }
  return value;
}

void append_utf8(std::string& text, char32_t c) {
  const auto byte = [&text](char32_t bits) { text += static_cast<char>(bits); };
  if (c < 0x80) {
    byte(c);
  } else if (c < 0x800) {
    byte(0xc0 | c >> 6);
    byte(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    byte(0xe0 | c >> 12);
    byte(0x80 | (c >> 6 & 0x3f));
    byte(0x80 | (c & 0x3f));
  } else {
    byte(0xf0 | c >> 18);
    byte(0x80 | (c >> 12 & 0x3f));
    byte(0x80 | (c >> 6 & 0x3f));
    byte(0x80 | (c & 0x3f));
  }
}

std::string plain(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) append_visible(result, next_code_point(text, i));
  return result;
}

std::string markdown_escape(std::string_view text) {
  constexpr std::u32string_view kMarks = U"\\`*_{}[]<>|~&$";
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (kMarks.find(c) != kMarks.npos) result += '\\';
    append_visible(result, c);
    // Forges look for @names in the rendered text, where an escape is gone.
    if (c == '@') result += "<!-- -->";
  }
  return result;
}

std::string markdown_code(std::string_view text) {
  const std::string content = plain(text);
  std::size_t longest = 0, run = 0;
  for (char c : content) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const bool touches = !content.empty() && (content.front() == '`' || content.back() == '`');
  const char* space = touches ? " " : "";
  return fence + space + content + space + fence;
}

std::string xml_escape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\t': result += "&#9;"; break;
      case '\n': result += "&#10;"; break;
      case '\r': result += "&#13;"; break;
      case 0xfffe:
      case 0xffff: append_utf8(result, kReplacement); break;
      default: append_visible(result, c);
    }
  }
  return result;
}

std::string xml_text(std::string_view text) {
  std::string result;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(end)) {
    end = std::min(text.find('\n'), text.size());
    result += xml_escape(text.substr(0, end));
    if (end == text.size()) break;
    result += '\n';
    ++end;
  }
  return result;
}

std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) next_code_point(text, i);
  return count;
}

std::string shorten(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return std::string(text);
  const std::size_t kept = width > 3 ? width - 3 : 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < kept; ++i) next_code_point(text, end);
  return std::string(text.substr(0, end)) + std::string(std::min<std::size_t>(width, 3), '.');
}

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    value /= 1024;
    if (value < 1023.95) return fmt::format("{:.1f} {}", value, unit);
  }
  return fmt::format("{:.1f} TiB", value / 1024);
}

std::string grouped_short(std::int64_t value) {
  for (const char* unit : {"", "k", "M", "G", "T"}) {
    std::string text = grouped(value) + unit;
    if (text.size() <= 6) return text;
    value /= 1000;
  }
  return grouped(value) + "P";
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "unknown time";
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{} min {} s", grouped(whole / 60), whole % 60);
}

std::string ratio_text(double value) {
  const double size = std::fabs(value);
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (size >= 1e5 || (size < 1e-3 && size > 0)) return fmt::format("{:.1e}", value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  // 1 is the tolerance: 0.9996 passes and 1.0004 fails, so neither may read "1.000".
  for (int digits = 3;; ++digits) {
    const std::string text = fmt::format("{:.{}f}", value, digits);
    if (digits == 17 || value == 1 || std::stod(text) != 1) return text;
  }
}

NumberPair number_pair(double first, double second) {
  for (int digits = 6;; ++digits) {
    NumberPair pair{fmt::format("{:.{}g}", first, digits), fmt::format("{:.{}g}", second, digits)};
    if (digits == 17 || pair.first != pair.second || first == second) return pair;
  }
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!word.empty()) {
      if (!line.empty() && columns(line) + 1 + columns(word) > width) {
        lines.push_back(std::move(line));
        line.clear();
      }
      if (!line.empty()) line += ' ';
      line += word;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%#";
  // A '#' starts a comment at the start of a word alone.
  if (!word.empty() && word[0] != '#' && word.find_first_not_of(kSafe) == word.npos)
    return std::string(word);
  std::string result = "'";
  for (char c : word) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + "'";
}

}  // namespace attest
