// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "harness/accident.hpp"

namespace attest {

namespace {

/// Bytes of the well-formed UTF-8 sequence at the start of the text; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and beyond U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90))
    return 0;
  return length;
}

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Bytes of a hexadecimal number of more than five digits; 0 where there is none.
std::size_t address_length(std::string_view text) {
  if (!text.starts_with("0x")) return 0;
  std::size_t end = 2;
  while (end < text.size() && is_hex_digit(text[end])) ++end;
  return end > 7 ? end : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const char first = text.front();
    std::size_t taken = 1;
    if (static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else if (const std::size_t address = address_length(text)) {
      line += "0x..";
      taken = address;
    } else if (const std::size_t length = utf8_length(text)) {
      line += text.substr(0, length);
      taken = length;
    } else {
      line += '?';
    }
    text.remove_prefix(taken);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace attest
