// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "reports/sample_records_test.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

/// Rows of a screen that wraps long lines itself.
std::size_t screen_rows(const std::string& text, std::size_t width) {
  std::size_t rows = 0;
  for (const std::string& line : lines(text))
    rows += std::max<std::size_t>(1, (columns(line) + width - 1) / width);
  return rows;
}

bool is_command(const std::string& line) {
  return line.find("attest replay") != line.npos || line.find("attest check") != line.npos ||
         line.find("attest explain") != line.npos;
}

TEST(Terminal, VerdictComesFirst) {
  EXPECT_EQ(terminal_report(conformant_sample()).substr(0, 35),
            "CONFORMANT naive 1.0: 20,312 cases,");
  EXPECT_EQ(terminal_report(failing_sample()).substr(0, 24), "NOT CONFORMANT mine 0.3:");
  EXPECT_EQ(terminal_report(too_little_sample()).substr(0, 30), "TOO LITTLE TESTED refuses 0.1:");
  EXPECT_EQ(terminal_report(incomplete_sample()).substr(0, 21), "INCOMPLETE naive 1.0:");
}

TEST(Terminal, FitsItsWidthButForCommands) {
  for (const Record& record :
       {conformant_sample(), failing_sample(), too_little_sample(), incomplete_sample()})
    for (int width : {60, 80, 100, 140})
      for (const std::string& line : lines(terminal_report(record, {.width = width})))
        EXPECT_TRUE(is_command(line) || columns(line) <= static_cast<std::size_t>(width)) << line;
}

TEST(Terminal, ReplayLinesAreWhole) {
  const Record record = failing_sample();
  for (int width : {60, 100}) {
    const std::string text = terminal_report(record, {.width = width});
    for (const Failure& failure : record.failures)
      EXPECT_NE(text.find(failure.replay + '\n'), text.npos) << failure.replay;
  }
}

TEST(Terminal, AFailingRunFitsOneScreen) {
  EXPECT_LE(screen_rows(terminal_report(failing_sample()), 100), 40u);

  // Three causes, each with numbers, a diagnosis, and a case line that takes three rows.
  Record record = failing_sample();
  for (std::size_t i = 0; i < 3; ++i) {
    record.failures[i].worst = record.failures[0].worst;
    record.failures[i].numbers = std::vector<std::string>(12, "o[0,0,0,0] expected 0.5 got 0");
    record.failures[i].replay = "attest replay '" + std::string(250, 'x') + "'";
    record.causes[i].diagnosis =
        "a mistake that takes more than one line to be described " + std::string(90, 'y');
  }
  record.notes = {"one", "two"};
  const std::string text = terminal_report(record);
  EXPECT_LE(screen_rows(text, 100), 40u) << text;
  EXPECT_NE(text.find(record.failures[2].replay), text.npos);
}

TEST(Terminal, ShowsNumbersWhereTheyFit) {
  Record record = failing_sample();
  EXPECT_NE(terminal_report(record).find(record.failures[0].numbers[1]), std::string::npos);
  record.failures[0].numbers = std::vector<std::string>(30, "number");
  EXPECT_EQ(terminal_report(record).find("number\n"), std::string::npos);
  EXPECT_NE(terminal_report(record, {.height = 80}).find("number\n"), std::string::npos);
}

TEST(Terminal, ShowsThreeCausesAndCountsTheRest) {
  Record record = failing_sample();
  for (int id = 4; id <= 9; ++id) {
    record.causes.push_back(record.causes[1]);
    record.causes.back().id = id;
  }
  const std::string text = terminal_report(record);
  EXPECT_NE(text.find("6 more causes; the JSON report has them all"), text.npos) << text;
  EXPECT_EQ(text.find("\n4.  "), text.npos);
}

TEST(Terminal, PutsNewFailuresBeforeExpectedOnesAndWarnings) {
  Record record = failing_sample();
  record.failures[0].expected = true;
  record.failures[0].expected_why = "see the tracker";
  record.causes[1].verdict = Verdict::warn;
  record.causes[1].reason = Reason::flaky;
  const std::string text = terminal_report(record, {.width = 200});
  const std::size_t crash = text.find("1.  crash"), known = text.find("2.  fail, wrong_value"),
                    warning = text.find("3.  warn, flaky");
  EXPECT_LT(crash, known);
  EXPECT_LT(known, warning);
  EXPECT_NE(warning, text.npos);
  EXPECT_NE(text.find("(expected: see the tracker)"), text.npos);
}

TEST(Terminal, ColourOnlyWhenTold) {
  for (const Record& record : {failing_sample(), hostile_sample()})
    EXPECT_EQ(terminal_report(record).find('\x1b'), std::string::npos);
  const std::string coloured = terminal_report(failing_sample(), {.colour = true});
  EXPECT_EQ(coloured.substr(0, 25), "\x1b[1;31mNOT CONFORMANT\x1b[0m");
  std::string bare;
  for (std::size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\x1b')
      i = coloured.find('m', i);
    else
      bare += coloured[i];
  }
  EXPECT_EQ(bare, terminal_report(failing_sample())) << "colour changes nothing else";
}

TEST(Terminal, BriefIsOneLine) {
  const std::string text = terminal_report(failing_sample(), {.brief = true});
  EXPECT_EQ(text,
            "NOT CONFORMANT mine 0.3: 556 of 20,312 cases fail, 3 causes (suite quick, seed 1, "
            "48.2 s); first: fail, wrong_value: wrong o where base=causal and q_len differs from "
            "kv_len\n");
  EXPECT_EQ(lines(terminal_report(hostile_sample(), {.brief = true})).size(), 1u);
}

TEST(Terminal, SurvivesAnEmptyRecordAndOddOptions) {
  for (int width : {-5, 0, 1, 100'000})
    for (int height : {-1, 0, 1})
      EXPECT_FALSE(terminal_report(Record{}, {.width = width, .height = height}).empty());
  Record damaged = failing_sample();
  damaged.failures.clear();
  EXPECT_FALSE(terminal_report(damaged).empty());
}

TEST(Terminal, SaysThatAnExpectationIsStale) {
  Record record = conformant_sample();
  record.expectations = {{"fail A * none - why", 3, "stale"}};
  const std::string text = terminal_report(record);
  EXPECT_NE(text.substr(0, text.find('\n')).find("1 stale expectation"), text.npos);
}

}  // namespace
}  // namespace attest
