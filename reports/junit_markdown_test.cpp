// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "reports/format.hpp"
#include "reports/sample_records_test.hpp"

namespace attest {
namespace {

std::string junit(const Record& record) { return find_report_format("junit")->write(record); }
std::string markdown(const Record& record) { return find_report_format("markdown")->write(record); }

/// The text of one test case.
std::string test_of(const std::string& xml, const std::string& name) {
  const std::size_t start = xml.find("name=\"" + name + "\" time=");
  EXPECT_NE(start, xml.npos) << name;
  return xml.substr(start, xml.find("<testcase", start) - start);
}

TEST(JUnit, TooLittleTestedFailsThoughNoTestDoes) {
  const std::string xml = junit(too_little_sample());
  EXPECT_NE(test_of(xml, "AGREE-O f32").find("<skipped"), xml.npos);
  EXPECT_NE(test_of(xml, "verdict").find("<failure"), std::string::npos);
}

TEST(JUnit, AnIncompleteRunIsAnError) {
  EXPECT_NE(test_of(junit(incomplete_sample()), "verdict").find("<error"), std::string::npos);
}

TEST(JUnit, KnownFailuresSkipAndNewOnesBesideThemFail) {
  Record record = failing_sample();
  for (Failure& failure : record.failures) failure.expected = true;
  const std::string known = junit(record);
  EXPECT_EQ(known.find("<failure"), known.npos);
  EXPECT_NE(test_of(known, "AGREE-O f32").find("<skipped message=\"expected: 230 of"), known.npos);
  EXPECT_NE(test_of(known, "verdict").find("<skipped"), known.npos);

  Failure fresh = record.failures[0];
  fresh.expected = false;
  record.failures.push_back(fresh);
  const std::string mixed = junit(record);
  EXPECT_NE(test_of(mixed, "AGREE-O f32").find("<failure"), std::string::npos);
  EXPECT_NE(test_of(mixed, "verdict").find("<failure"), std::string::npos);
}

TEST(JUnit, AStaleExpectationFails) {
  Record record = conformant_sample();
  EXPECT_EQ(junit(record).find("<failure"), std::string::npos);
  record.expectations = {{"fail A * none - why", 3, "stale"}};
  EXPECT_NE(test_of(junit(record), "verdict").find("line 3 of the expectations is stale"),
            std::string::npos);
}

TEST(Markdown, StaysBelowTheSizeOfAComment) {
  Record record = failing_sample();
  for (int i = 0; i < 20'000; ++i) record.failures.push_back(record.failures[0]);
  std::string text = markdown(record);
  EXPECT_LT(text.size(), 65'536u);
  EXPECT_NE(text.find("rows left out"), text.npos);
  EXPECT_NE(text.find(record.failures[0].replay), text.npos);

  for (int i = 0; i < 3; ++i) record.failures[i].replay = std::string(100'000, 'r');
  for (Cause& cause : record.causes) cause.sentence = std::string(100'000, '@');
  text = markdown(record);
  EXPECT_LT(text.size(), 65'536u);
  EXPECT_EQ(text.substr(0, 26), "### Attest: NOT CONFORMANT");
}

TEST(Markdown, NoContentLeavesItsBlock) {
  Record record = failing_sample();
  record.failures[0].numbers = {"```", "</details>"};
  record.failures[1].case_line = "a | b";
  const std::string text = markdown(record);
  EXPECT_NE(text.find("````\n```\n</details>\n````\n"), text.npos);
  EXPECT_NE(text.find("`a \\| b`"), text.npos);
}

}  // namespace
}  // namespace attest
