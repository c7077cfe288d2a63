// SPDX-License-Identifier: Apache-2.0
// What each format writes for the sample records, held against checked-in baselines. After a change
// that is meant, run with ATTEST_UPDATE_BASELINES=1 and read the difference as a user would.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "reports/atomic_file.hpp"
#include "reports/format.hpp"
#include "reports/sample_records_test.hpp"
#include "reports/verdict_table.hpp"

namespace attest {
namespace {

void approve(const std::string& name, const std::string& text) {
  const std::string path = std::string(ATTEST_SOURCE_DIR) + "/reports/testdata/" + name;
  if (std::getenv("ATTEST_UPDATE_BASELINES")) {
    ASSERT_EQ(write_file(path, text), std::nullopt);
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path;
}

std::map<std::string, Record> samples() {
  return {{"conformant", conformant_sample()},
          {"failing", failing_sample()},
          {"held", held_sample()},
          {"too_little", too_little_sample()},
          {"incomplete", incomplete_sample()},
          {"hostile", hostile_sample()}};
}

TEST(Approval, EveryFormatOfEverySample) {
  ASSERT_FALSE(report_formats().empty());
  for (const ReportFormat& format : report_formats()) {
    if (format.name == "html") continue;  // the JSON in a page: html_report_test.cpp
    for (const auto& [name, record] : samples())
      approve(name + '.' + std::string(format.extension), format.write(record));
  }
}

TEST(Approval, VerdictTable) {
  const std::vector<Record> records = {conformant_sample(), failing_sample(), too_little_sample(),
                                       incomplete_sample()};
  approve("verdict_table.txt", verdict_table(records));
  approve("verdict_table.md", verdict_table(records, TableStyle::markdown));
}

TEST(Formats, AreSortedAndFoundByName) {
  const auto& formats = report_formats();
  for (std::size_t i = 1; i < formats.size(); ++i) EXPECT_LT(formats[i - 1].name, formats[i].name);
  for (const char* name : {"json", "junit", "markdown", "terminal"}) {
    const ReportFormat* format = find_report_format(name);
    ASSERT_NE(format, nullptr) << name;
    EXPECT_EQ(format->name, name);
    EXPECT_FALSE(format->purpose.empty());
  }
  EXPECT_EQ(find_report_format("pdf"), nullptr);
}

}  // namespace
}  // namespace attest
