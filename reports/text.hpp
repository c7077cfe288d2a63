// SPDX-License-Identifier: Apache-2.0
// Text for people and for strict readers. Every string of a record may come from a foreign kernel,
// so nothing reaches a terminal, XML or Markdown without passing through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

/// The next code point of `text` from `position` on, which moves past it. Malformed UTF-8 gives
/// U+FFFD, one for each byte that fits nothing.
char32_t next_code_point(std::string_view text, std::size_t& position);
void append_utf8(std::string& text, char32_t code_point);

/// One line that is safe on a terminal: control characters become \xNN (no escape sequence gets
/// through), malformed UTF-8 U+FFFD.
std::string plain(std::string_view text);

/// plain() with the marks that Markdown or HTML would act on escaped.
std::string markdown_escape(std::string_view text);

/// A Markdown code span that holds the text as it is, whatever backticks are in it.
std::string markdown_code(std::string_view text);

/// For an attribute of XML 1.0. Characters that XML cannot hold at all become \xNN.
std::string xml_escape(std::string_view text);
/// For the content of an element: the same, but line breaks stay.
std::string xml_text(std::string_view text);

/// Columns that the text takes, one for each code point.
std::size_t columns(std::string_view text);

/// At most `width` columns, the last three of them "..." where something was cut.
std::string shorten(std::string_view text, std::size_t width);

/// "20,312"
std::string grouped(std::int64_t value);
/// "512 B", "10.8 MiB"
std::string bytes_text(std::int64_t bytes);
/// grouped() within 6 columns: "20,312", "1,203k", "98M".
std::string grouped_short(std::int64_t value);
/// "1 case", "3 cases"
std::string counted(std::int64_t count, std::string_view noun);
/// "0.4 s", "48.2 s", "12 min 4 s"
std::string duration(double seconds);
/// "0.997": digits enough to tell it from 1; "410", "2.1e+06", "nan", "inf".
std::string ratio_text(double value);

/// Two numbers with at least 6 digits, and as many more as it takes to tell them apart.
struct NumberPair {
  std::string first, second;
};
NumberPair number_pair(double first, double second);

std::string join(const std::vector<std::string>& words, std::string_view separator);

/// Breaks at blanks into lines of at most `width` columns; a longer word gets a line of its own.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// A word for a shell, quoted only where it must be.
std::string shell_word(std::string_view word);

}  // namespace attest
