// SPDX-License-Identifier: Apache-2.0
#include "reports/text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace attest {
namespace {

TEST(Text, RefusesMalformedUtf8ByteByByte) {
  const auto points = [](std::string_view text) {
    std::u32string result;
    for (std::size_t i = 0; i < text.size();) result += next_code_point(text, i);
    return result;
  };
  EXPECT_EQ(points("a\xc2\xa2\xe2\x82\xac\xf0\x9f\x98\x80"), U"a\u00a2\u20ac\U0001f600");
  EXPECT_EQ(points("\xc0\x80"), U"\ufffd\ufffd") << "overlong NUL";
  EXPECT_EQ(points("\xe0\x80\x80"), U"\ufffd\ufffd\ufffd") << "overlong";
  EXPECT_EQ(points("\xed\xa0\x80"), U"\ufffd\ufffd\ufffd") << "surrogate";
  EXPECT_EQ(points("\xf4\x90\x80\x80"), U"\ufffd\ufffd\ufffd\ufffd") << "beyond U+10FFFF";
  EXPECT_EQ(points("\xe2\x82"), U"\ufffd\ufffd") << "cut short";
  EXPECT_EQ(points("\xff"
                   "b"),
            U"\ufffdb");
}

TEST(Text, AppendsWhatItReads) {
  for (char32_t c :
       {U'\x01', U'\x7f', U'\x80', U'\u07ff', U'\u0800', U'\uffff', U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    append_utf8(text, c);
    std::size_t position = 0;
    EXPECT_EQ(next_code_point(text, position), c);
    EXPECT_EQ(position, text.size());
  }
}

TEST(Text, LetsNothingActOnATerminal) {
  EXPECT_EQ(plain("a\x1b[31mb\r\n\t\x7f"), "a\\x1b[31mb\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(plain(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(plain("\xc2\x9b"), "\\x9b") << "the one-byte form of ESC [";
  EXPECT_EQ(plain("\xe2\x80\xae"), "\\u202e") << "right-to-left override";
  EXPECT_EQ(plain("\xc3\xa9"), "\xc3\xa9") << "ordinary letters stay";
}

TEST(Text, EscapesXml) {
  EXPECT_EQ(xml_escape("<a b=\"c\">&'\n\t"), "&lt;a b=&quot;c&quot;&gt;&amp;'&#10;&#9;");
  EXPECT_EQ(xml_escape("\x01\xef\xbf\xbe"), "\\x01\xef\xbf\xbd");
  EXPECT_EQ(xml_text("a\n<b>\n"), "a\n&lt;b&gt;\n");
  EXPECT_EQ(xml_text("\n\na"), "\n\na");
  EXPECT_EQ(xml_text(""), "");
}

TEST(Text, EscapesMarkdown) {
  EXPECT_EQ(markdown_escape("a_b*c|d<e>"), "a\\_b\\*c\\|d\\<e\\>");
  EXPECT_EQ(markdown_escape("@you"), "@<!-- -->you");
  EXPECT_EQ(markdown_code("plain"), "`plain`");
  EXPECT_EQ(markdown_code("a``b"), "```a``b```");
  EXPECT_EQ(markdown_code("`"), "`` ` ``");
}

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(11'360'304), "10.8 MiB");
  EXPECT_EQ(bytes_text((std::int64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<std::int64_t>::max()), "8388608.0 TiB");
}

TEST(Text, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(grouped_short(99'999), "99,999");
  EXPECT_EQ(grouped_short(100'000), "100k");
  EXPECT_EQ(grouped_short(12'345'678), "12M");
  EXPECT_EQ(counted(1, "case"), "1 case");
  EXPECT_EQ(counted(2, "case"), "2 cases");
  EXPECT_EQ(ratio_text(0.2346), "0.235");
  EXPECT_EQ(ratio_text(0.997), "0.997");
  EXPECT_EQ(ratio_text(0.99965), "0.9997");
  EXPECT_EQ(ratio_text(1 - 1e-9), "0.999999999");
  EXPECT_EQ(ratio_text(1.0003), "1.0003");
  EXPECT_EQ(ratio_text(1), "1.000");
  EXPECT_EQ(ratio_text(std::nextafter(1.0, 2.0)), "1.0000000000000002");
  EXPECT_EQ(ratio_text(410.5), "410");
  EXPECT_EQ(ratio_text(2097152), "2.1e+06");
  EXPECT_EQ(ratio_text(2.1e-5), "2.1e-05");
  EXPECT_EQ(ratio_text(0), "0.000");
  EXPECT_EQ(ratio_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Text, Durations) {
  EXPECT_EQ(duration(0.04), "0.0 s");
  EXPECT_EQ(duration(48.21), "48.2 s");
  EXPECT_EQ(duration(312), "5 min 12 s");
  EXPECT_EQ(duration(119.7), "2 min 0 s");
  EXPECT_EQ(duration(-1), "unknown time");
  EXPECT_EQ(duration(std::numeric_limits<double>::quiet_NaN()), "unknown time");
}

TEST(Text, ShowsAsManyDigitsAsTellTwoNumbersApart) {
  const NumberPair close = number_pair(1.0, 1.0 + 0x1p-52);
  EXPECT_EQ(close.first, "1");
  EXPECT_EQ(close.second, "1.0000000000000002");
  const NumberPair apart = number_pair(0.5, 0.25);
  EXPECT_EQ(apart.first, "0.5");
  EXPECT_EQ(apart.second, "0.25");
  const NumberPair third = number_pair(1.0 / 3, 1.0 / 3);
  EXPECT_EQ(third.first, "0.333333");
  EXPECT_EQ(third.second, "0.333333");
}

TEST(Text, WrapsAtBlanksAndNeverInsideAWord) {
  EXPECT_EQ(wrap("aa bb  cc", 5), (std::vector<std::string>{"aa bb", "cc"}));
  EXPECT_EQ(wrap("a 1234567 b", 3), (std::vector<std::string>{"a", "1234567", "b"}));
  EXPECT_TRUE(wrap("   ", 5).empty());
}

TEST(Text, Shortens) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abc...");
  EXPECT_EQ(shorten("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 4), "\xc3\xa9...");
  EXPECT_EQ(shorten("abc", 2), "..");
}

TEST(Text, QuotesForAShell) {
  EXPECT_EQ(shell_word("./libmine.so"), "./libmine.so");
  EXPECT_EQ(shell_word("./libmine.so#fast"), "./libmine.so#fast");
  EXPECT_EQ(shell_word("#fast"), "'#fast'");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(rm)"), "'$(rm)'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace attest
