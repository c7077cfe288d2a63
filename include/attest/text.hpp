// SPDX-License-Identifier: Apache-2.0
// What the parsers of case lines, declarations and expectations share: words with their columns,
// numbers read strictly, and hostile text made fit for an error message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

/// Longer texts are refused unread.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 20;

struct Word {
  std::string_view text;
  std::size_t column = 0;  ///< 1-based, in bytes
};

/// The words between blanks and tabs.
std::vector<Word> split_words(std::string_view line);

/// The pieces between separators; "a,,b" has an empty one, "" is one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Lines without their "\n" or "\r\n".
std::vector<std::string_view> split_lines(std::string_view text);

/// 1-based column of the first byte that is neither printable ASCII nor a tab.
std::optional<std::size_t> unprintable_column(std::string_view line);

/// In single quotes, at most 40 bytes of it, unprintable ones as '?'.
std::string quote(std::string_view text);

/// Decimal digits with an optional '-', within the type's range; nothing before or after.
std::optional<std::int64_t> read_integer(std::string_view text);
std::optional<std::uint64_t> read_unsigned(std::string_view text);

/// Decimal ("0.1", "1e-5"), hexadecimal ("0x1.8p-3"), "inf", "-inf" or "nan". Rounded to nearest;
/// refused where the nearest double would be infinite or where a non-zero text would become 0.
std::optional<double> read_number(std::string_view text);

}  // namespace attest
