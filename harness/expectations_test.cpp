// SPDX-License-Identifier: Apache-2.0
#include "harness/expectations.hpp"

#include <gtest/gtest.h>

#include "attest/text.hpp"

namespace attest {
namespace {

const std::vector<std::string> kRequirements{"MASK-NOLEAK", "AGREE-O"};

TEST(Expectations, ReadsEntriesCommentsAndBlankLines) {
  const auto entries = parse_expectations(
      "# known failures of mine\n"
      "\n"
      "  fail MASK-NOLEAK *window=* wrong_value 2027-01-31 waiting for  the tile bound fix  # "
      "soon\r\n"
      "warn AGREE-O * biased - small rows",
      kRequirements);
  ASSERT_TRUE(entries) << entries.error();
  ASSERT_EQ(entries->size(), 2u);
  const Expectation& first = entries->front();
  EXPECT_EQ(first.status, Verdict::fail);
  EXPECT_EQ(first.requirement, "MASK-NOLEAK");
  EXPECT_EQ(first.pattern, "*window=*");
  EXPECT_EQ(first.reason, Reason::wrong_value);
  EXPECT_EQ(first.until, "2027-01-31");
  EXPECT_EQ(first.why, "waiting for  the tile bound fix");
  EXPECT_EQ(first.line_number, 3);
  EXPECT_EQ(first.line,
            "fail MASK-NOLEAK *window=* wrong_value 2027-01-31 waiting for  the tile bound fix");
  const Expectation& second = entries->back();
  EXPECT_EQ(second.status, Verdict::warn);
  EXPECT_EQ(second.reason, Reason::biased);
  EXPECT_EQ(second.until, "-");
  EXPECT_EQ(second.line_number, 4);
}

TEST(Expectations, NothingIsFine) {
  for (const char* text : {"", "\n\n", "# only a comment"}) {
    const auto entries = parse_expectations(text, kRequirements);
    ASSERT_TRUE(entries);
    EXPECT_TRUE(entries->empty());
  }
}

TEST(Expectations, ErrorsNameLineAndWord) {
  const struct {
    std::string text, error;
  } kTable[] = {
      {"fail AGREE-O * wrong_value -",
       "line 1, column 1: 5 words; an expectation is status requirement case-pattern reason until "
       "why"},
      {"\n  pass AGREE-O * wrong_value - why", "line 2, column 3: 'pass' is neither fail nor warn"},
      {"fail AGREE-Q * wrong_value - why", "line 1, column 6: 'AGREE-Q' is no requirement"},
      {"fail AGREE-O * wrong - why", "line 1, column 16: 'wrong' is no reason"},
      {"fail AGREE-O * wrong_value soon why",
       "line 1, column 28: 'soon' is neither a date (YYYY-MM-DD) nor -"},
      {"fail AGREE-O * wrong_value 2026-02-29 why",
       "line 1, column 28: '2026-02-29' is neither a date (YYYY-MM-DD) nor -"},
      {"fail AGREE-O * wrong_value 2026-13-01 why",
       "line 1, column 28: '2026-13-01' is neither a date (YYYY-MM-DD) nor -"},
      {"fail AGREE-O * wrong_value 2026-1-001 why",
       "line 1, column 28: '2026-1-001' is neither a date (YYYY-MM-DD) nor -"},
      {"fail AGREE-O * wrong_value - a\nfail AGREE-O * wrong_value 2030-01-01 b",
       "line 2, column 1: says the same as line 1"},
      {"fail AGREE-O " + std::string(4097, '*') + " wrong_value - why",
       "line 1, column 14: the pattern has 4097 bytes; at most 4096 are read"},
      {std::string("fail\0", 5), "line 1, column 5: a byte that is not printable ASCII"},
      {std::string(kMostTextBytes + 1, '\n'), "1048577 bytes long; at most 1048576 are read"},
  };
  for (const auto& [text, error] : kTable) {
    const auto entries = parse_expectations(text, kRequirements);
    ASSERT_FALSE(entries) << text;
    EXPECT_EQ(entries.error(), error);
  }
}

TEST(Expectations, LeapDaysExist) {
  EXPECT_TRUE(parse_expectations("fail AGREE-O * wrong_value 2028-02-29 why", kRequirements));
}

TEST(GlobMatch, StarsAndQuestionMarks) {
  const struct {
    const char *pattern, *text;
    bool matches;
  } kTable[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "abc", true},
      {"?", "", false},
      {"?", "a", true},
      {"a*c", "abbbc", true},
      {"a*c", "abbb", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"*b*", "abc", true},
      {"*bb*", "abab", false},
      {"**a**", "a", true},
      {"ab", "abc", false},
      {"abc", "ab", false},
      {"*aab", "aaaab", true},
      {"a*", "b", false},
      {"*.*", "a.b", true},
      {"*[x]", "a[x]", true},
      {"[ab]", "a", false},
      {"a\\*", "a\\b", true},
      {"*window=?,0*", "attention.forward lq=2 window=3,0 seed=1", true},
      {"*lq=2 lk=*", "attention.forward lq=2 lk=3", true},
  };
  for (const auto& [pattern, text, matches] : kTable)
    EXPECT_EQ(glob_match(pattern, text), matches) << pattern << " on " << text;
}

TEST(GlobMatch, ManyStarsOnALongTextStayQuick) {
  // Exponential for a matcher that tries every star anew: 30 stars over 2,000 bytes.
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(2000, 'a')));
  EXPECT_TRUE(glob_match(pattern, std::string(2000, 'a')));
}

}  // namespace
}  // namespace attest
