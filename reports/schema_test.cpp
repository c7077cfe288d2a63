// SPDX-License-Identifier: Apache-2.0
// Every JSON output obeys the published schema, and the schema refuses what is not a record.
// Foreign readers (Python's jsonschema and XML parser) are the judges.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reports/atomic_file.hpp"
#include "reports/format.hpp"
#include "reports/python_test.hpp"
#include "reports/sample_records_test.hpp"

namespace attest {
namespace {

std::string written(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "attest-schema-" + name;
  EXPECT_EQ(write_file(path, text), std::nullopt);
  return path;
}

std::vector<Record> samples() {
  return {conformant_sample(), failing_sample(), too_little_sample(),
          incomplete_sample(), hostile_sample(), bare_sample()};
}

TEST(Schema, AcceptsEveryOutput) {
  std::string files;
  int number = 0;
  for (const Record& record : samples())
    files += ' ' +
             written(std::to_string(number++) + ".json", find_report_format("json")->write(record));
  const Output output = validate(files);
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

TEST(Schema, NoticesEveryMissingExtraAndMistypedKey) {
  Record record = held_sample();
  record.expectations = {{"fail A * none - why", 3, "stale"}};
  const std::string path = written("mutated.json", find_report_format("json")->write(record));
  const Output output = validate("--mutate " + path);
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

TEST(Schema, RefusesABrokenRecord) {
  const std::string json = find_report_format("json")->write(failing_sample());
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"conformant\": false", "\"conformant\": true"},
      {"\"schema\": \"attest.record/1\"", "\"schema\": \"attest.record/2\""},
      {"\"reason\": \"out_of_bounds_read\"", "\"reason\": \"bad_luck\""},
      {"\"verdict\": \"crash\"", "\"verdict\": \"boom\""},
      {"\"expected\": 0.5", "\"expected\": \"half\""},
      {"\"seed\": 1", "\"seed\": -1"},
      {"\"level\": \"required\"", "\"level\": \"some\""}};
  std::string files;
  for (const auto& [from, to] : changes) {
    std::string broken = json;
    ASSERT_NE(broken.find(from), broken.npos) << from;
    broken.replace(broken.find(from), from.size(), to);
    files += ' ' + written("broken-" + std::to_string(files.size()) + ".json", broken);
  }
  const Output output = validate(files);
  EXPECT_EQ(output.exit_code, 1);
  std::size_t refused = 0;
  for (std::size_t at = 0; (at = output.text.find("bad /", at)) != std::string::npos; ++at)
    ++refused;
  EXPECT_EQ(refused, changes.size()) << output.text;
}

template <class Enum>
std::string names(Enum last) {
  std::string text;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    text += std::string(name(static_cast<Enum>(i))) + '\n';
  return text;
}

TEST(Schema, EnumeratesTheClosedListsOfTheCode) {
  EXPECT_EQ(validate("--enum verdict").text, names(Verdict::error));
  EXPECT_EQ(validate("--enum reason").text, names(Reason::flaky));
  EXPECT_EQ(validate("--enum suite_verdict").text, names(SuiteVerdict::incomplete));
}

TEST(JUnit, IsXmlWhateverAKernelSays) {
  for (const Record& record : samples()) {
    const std::string path = written("junit.xml", find_report_format("junit")->write(record));
    const Output output = python(
        "-c \"import sys, xml.etree.ElementTree as e; s = e.parse(sys.argv[1]).getroot()[0];"
        "c = s.findall('testcase'); f = [t for t in c if t.find('failure') is not None];"
        "x = [t for t in c if t.find('error') is not None];"
        "k = [t for t in c if t.find('skipped') is not None];"
        "assert (len(c), len(f), len(x), len(k)) == tuple(int(s.get(a)) for a in"
        " ('tests', 'failures', 'errors', 'skipped')); assert c[-1].get('name') == 'verdict'\" " +
        path);
    EXPECT_EQ(output.exit_code, 0) << output.text;
  }
}

}  // namespace
}  // namespace attest
