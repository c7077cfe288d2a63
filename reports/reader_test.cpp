// SPDX-License-Identifier: Apache-2.0
#include "reports/reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reports/format.hpp"
#include "reports/sample_records_test.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

std::string json_of(const Record& record) { return find_report_format("json")->write(record); }

/// The error for the failing sample with one change.
std::string error_after(const std::string& from, const std::string& to) {
  const Result<Record> record = read_record(replaced(json_of(failing_sample()), from, to));
  EXPECT_FALSE(record) << to;
  return record ? "" : record.error();
}

/// Every member differs from its default, so that none can be forgotten unnoticed.
Record full_sample() {
  Record record = failing_sample();
  record.counts = {.pass = 1,
                   .warn = 2,
                   .fail = 3,
                   .crash = 4,
                   .hang = 5,
                   .out_of_memory = 6,
                   .unsupported = 7,
                   .not_judged = 8,
                   .error = 9};
  record.subject.built_in = true;
  record.scope.cut = "after 3 of 4";
  record.shard = "2/3";
  record.seed = 18'446'744'073'709'551'615u;
  record.audit.outside = 3;
  record.audit.first_outside = "attest.forward o[0]";
  record.matrix[0].unsupported = 5;
  record.expectations = {{"fail A * none - why", 3, "wrong_reason"}};
  record.notes = {"a note"};
  record.requirements[0].level = "advisory";
  for (Failure& failure : record.failures) {
    failure.index = 18'446'744'073'709'551'615u;
    failure.fully_shrunk = false;
    failure.expected = true;
    failure.expected_why = "known";
    failure.worst = Element{"lse", {1, 2}, -0.0, 5e-324, 0.1 + 0.2, 1.7976931348623157e308};
  }
  return record;
}

TEST(Reader, GivesBackWhatWasWritten) {
  for (const Record& record : {conformant_sample(), failing_sample(), too_little_sample(),
                               incomplete_sample(), full_sample(), bare_sample()}) {
    const std::string json = json_of(record);
    const Result<Record> back = read_record(json);
    ASSERT_TRUE(back) << back.error();
    EXPECT_EQ(*back, record);
    EXPECT_EQ(json_of(*back), json);
  }
}

TEST(Reader, KeepsTheSignOfZero) {
  const Result<Record> back = read_record(json_of(full_sample()));
  ASSERT_TRUE(back);
  EXPECT_TRUE(std::signbit(back->failures[0].worst->expected));
}

TEST(Reader, KeepsNumbersThatJsonHasNot) {
  const Result<Record> back = read_record(json_of(hostile_sample()));
  ASSERT_TRUE(back) << back.error();
  const Element& worst = *back->failures[0].worst;
  EXPECT_TRUE(std::isnan(worst.expected));
  EXPECT_EQ(worst.actual, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(worst.ratio, 5e-324);
  const std::string json = json_of(hostile_sample());
  EXPECT_NE(json.find("\"expected\": \"nan\""), json.npos);
  EXPECT_NE(json.find("\"actual\": \"-inf\""), json.npos);
}

TEST(Reader, TwoRunsDifferInTheirTimesAlone) {
  Record other = failing_sample();
  other.started = "2027-06-01T00:00:00Z";
  other.wall_seconds = 1;
  other.cpu_seconds = 2;
  const std::string a = json_of(failing_sample()), b = json_of(other);
  const std::size_t times = a.find(" \"times\": ");
  ASSERT_NE(times, a.npos);
  EXPECT_NE(a, b);
  EXPECT_EQ(a.substr(0, times), b.substr(0, times));
  EXPECT_EQ(a.find('\n', times) + 3, a.size()) << "times are the last line before the brace";
}

TEST(Reader, CallsForeignFilesForeign) {
  EXPECT_EQ(read_record("[]").error(), "not a record of attest: no \"schema\"");
  EXPECT_EQ(read_record("{}").error(), "not a record of attest: no \"schema\"");
  EXPECT_EQ(read_record("{\"schema\": 1}").error(), "not a record of attest: no \"schema\"");
  EXPECT_EQ(read_record("{\"schema\": \"attest.record/2\"}").error(),
            "schema 'attest.record/2' is not the one read here, attest.record/1");
}

TEST(Reader, RefusesWhatIsNotJson) {
  EXPECT_EQ(read_record("").error(), "not JSON, or cut short: byte 1, near ''");
  EXPECT_EQ(read_record("{\"a\": \x01}").error(),
            "not JSON, or cut short: byte 7, near '\"a\": <U+0001>'");
  EXPECT_EQ(read_record(std::string("\0", 1)).error().substr(0, 24), "not JSON, or cut short: ");
  EXPECT_EQ(read_record("{\"schema\": \"attest.record/1\"} x").error().substr(0, 24),
            "not JSON, or cut short: ");
  EXPECT_EQ(read_record("{\"\xff\": 1}").error().substr(0, 24), "not JSON, or cut short: ");
}

TEST(Reader, RefusesEveryTruncation) {
  const std::string json = json_of(failing_sample());
  for (std::size_t length = 0; length + 2 < json.size(); length += 7) {
    const Result<Record> record = read_record(std::string_view(json).substr(0, length));
    ASSERT_FALSE(record) << length;
    EXPECT_EQ(record.error().find('\n'), std::string::npos);
  }
}

TEST(Reader, SurvivesAnyChangedByte) {
  const std::string json = json_of(full_sample());
  int accepted = 0;
  for (std::size_t i = 0; i < json.size(); i += 3) {
    std::string broken = json;
    broken[i] = static_cast<char>(broken[i] ^ (1 << i % 8));
    const Result<Record> record = read_record(broken);
    // What is accepted is a whole record that can be written.
    if (record) {
      ++accepted;
      EXPECT_FALSE(json_of(*record).empty());
    } else {
      EXPECT_FALSE(record.error().empty());
      EXPECT_EQ(record.error().find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0) << "a changed letter of a text is not an error";
}

TEST(Reader, RefusesHostileSizes) {
  EXPECT_EQ(read_record(std::string(1'000'000, '[')).error(), "nested deeper than 8 levels");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_EQ(read_record(deep).error(), "nested deeper than 8 levels");
  EXPECT_EQ(read_record(std::string(kMaxRecordBytes + 1, ' ')).error(),
            "larger than the 64 MiB that a record may have");
}

TEST(Reader, NamesThePlace) {
  EXPECT_EQ(error_after("\"seed\": 1", "\"seed\": -1"),
            "seed: must be a whole number, not negative");
  EXPECT_EQ(error_after("\"seed\": 1", "\"seed\": 1.5"),
            "seed: must be a whole number, not negative");
  EXPECT_EQ(error_after("\"seed\": 1", "\"seed\": 18446744073709551616"),
            "seed: must be a whole number, not negative");
  EXPECT_EQ(error_after("\"pass\": 19700", "\"pass\": 9223372036854775808"),
            "counts.pass: 9223372036854775808 is too large");
  EXPECT_EQ(error_after("\"cores\": 2", "\"cores\": 2147483648"),
            "machine.cores: 2147483648 is too large");
  EXPECT_EQ(error_after("\"seed\": 1", "\"seed\": 1, \"color\": 2"), "record: unknown key 'color'");
  EXPECT_EQ(error_after("\"seed\": 1,\n", ""), "record: has no \"seed\"");
  EXPECT_EQ(error_after("\"seed\": 1", "\"seed\": 1, \"seed\": 2"),
            "key 'seed' stands twice in one object");
  EXPECT_EQ(error_after("\"name\": \"attest\"", "\"name\": \"other\""),
            "tool: name does not agree with the rest");
  EXPECT_EQ(error_after("\"conformant\": false", "\"conformant\": true"),
            "record: conformant does not agree with the rest");
  EXPECT_EQ(error_after("\"verdict\": \"not_conformant\"", "\"verdict\": \"fine\""),
            "verdict: 'fine' is none of the known ones");
  EXPECT_EQ(error_after("\"reason\": \"out_of_bounds_read\"", "\"reason\": \"bad\\nluck\""),
            "causes[1].reason: 'bad\\x0aluck' is none of the known ones");
  EXPECT_EQ(error_after("\"level\": \"required\"", "\"level\": \"some\""),
            "requirements[0]: level 'some' is none of the known ones");
  EXPECT_EQ(error_after("\"expected\": 0.5", "\"expected\": \"half\""),
            "failures[0].worst.expected: must be a number, \"nan\", \"inf\" or \"-inf\"");
  EXPECT_EQ(error_after("\"bf16\": {\"pass\": 4900", "\"bf16\": {\"pass\": \"many\""),
            "requirements[0].by_dtype.'bf16'.pass: must be a whole number, not negative");
  EXPECT_EQ(error_after("\"dtypes\": [\"f32\", \"bf16\"]", "\"dtypes\": \"f32\""),
            "scope.dtypes: must be an array");
  EXPECT_EQ(error_after("\"built_in\": false", "\"built_in\": 0"),
            "subject.built_in: must be true or false");
  EXPECT_EQ(error_after("\"smallest\": 2", "\"smallest\": 3"),
            "causes[2].smallest: there are 3 failures");
  EXPECT_EQ(error_after("\"cause\": 3", "\"cause\": 4"), "failures[2].cause: there are 3 causes");
  EXPECT_EQ(error_after("\"id\": 2", "\"id\": 1"), "causes[1].id: must be 2");
}

TEST(Reader, ErrorsNeverCarryControlCharacters) {
  for (const char* hostile : {"\\u001b[2J", "\\u0000", "\\u202e"}) {
    const std::string error =
        error_after("\"seed\": 1", std::string("\"seed\": 1, \"") + hostile + "\": 2");
    for (char c : error) EXPECT_GE(static_cast<unsigned char>(c), 0x20u) << error;
  }
}

TEST(Reader, NamesTheFile) {
  EXPECT_EQ(read_record_file("/nonexistent/r.json").error(),
            "/nonexistent/r.json: No such file or directory");
  EXPECT_EQ(read_record_file("/").error(), "/: Is a directory");
  EXPECT_EQ(read_record_file("/dev/zero").error().substr(0, 11), "/dev/zero: ");
}

}  // namespace
}  // namespace attest
