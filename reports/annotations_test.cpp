// SPDX-License-Identifier: Apache-2.0
// Annotations of GitHub and the code-quality report of GitLab: what their readers need.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "reports/format.hpp"
#include "reports/sample_records_test.hpp"

namespace attest {
namespace {

std::string written(const char* format, const Record& record) {
  return find_report_format(format)->write(record);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Record with_causes(int count) {
  Record record = failing_sample();
  record.causes.resize(1, record.causes[0]);
  for (int id = 2; id <= count; ++id) {
    record.causes.push_back(record.causes[0]);
    record.causes.back().id = id;
    record.causes.back().sentence += " " + std::to_string(id);
  }
  record.failures[0].cause = 1;
  return record;
}

TEST(Annotations, NineAndHowManyMore) {
  EXPECT_EQ(lines_of(written("annotations", with_causes(9))).size(), 9u);
  const std::vector<std::string> lines = lines_of(written("annotations", with_causes(14)));
  ASSERT_EQ(lines.size(), 10u);
  for (const std::string& line : lines)
    EXPECT_EQ(line.rfind("::error title=attest", 0), 0u) << line;
  EXPECT_EQ(lines.back(), "::error title=attest::5 more; the JSON report has them all");
}

TEST(Annotations, KnownCausesAndWarningsAreNoErrors) {
  Record record = with_causes(3);
  record.causes[0].known = true;
  record.causes[1].verdict = Verdict::warn;
  const std::vector<std::string> lines = lines_of(written("annotations", record));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].rfind("::error ", 0), 0u);
  EXPECT_EQ(lines[1].rfind("::warning ", 0), 0u);
  EXPECT_EQ(lines[2].rfind("::warning ", 0), 0u);
}

TEST(Annotations, NothingOfAKernelStartsALineOfItsOwn) {
  for (const std::string& line : lines_of(written("annotations", hostile_sample())))
    EXPECT_TRUE(line.rfind("::error title=", 0) == 0 || line.rfind("::warning title=", 0) == 0)
        << line;
}

TEST(Annotations, ARunWithoutAVerdictIsAnError) {
  EXPECT_NE(written("annotations", too_little_sample()).find("TOO LITTLE TESTED"),
            std::string::npos);
  EXPECT_NE(written("annotations", incomplete_sample()).find("is stale"), std::string::npos);
  EXPECT_EQ(written("annotations", conformant_sample()), "");
}

TEST(CodeQuality, HasWhatGitLabAsksForAndTellsCausesApart) {
  const nlohmann::json list = nlohmann::json::parse(written("code-quality", with_causes(14)));
  ASSERT_EQ(list.size(), 14u);
  std::set<std::string> fingerprints;
  for (const auto& entry : list) {
    EXPECT_EQ(entry["severity"], "critical");
    EXPECT_EQ(entry["location"]["path"], "libmine.so");
    EXPECT_EQ(entry["location"]["lines"]["begin"], 1);
    fingerprints.insert(entry["fingerprint"].get<std::string>());
  }
  EXPECT_EQ(fingerprints.size(), 14u);
}

TEST(CodeQuality, IsJsonWhateverAKernelSays) {
  EXPECT_TRUE(nlohmann::json::accept(written("code-quality", hostile_sample())));
}

}  // namespace
}  // namespace attest
