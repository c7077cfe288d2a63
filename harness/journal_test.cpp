// SPDX-License-Identifier: Apache-2.0
#include "harness/journal.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

WorkList work_list() {
  WorkList work;
  work.declaration = *parse_declaration(kFakeDeclaration);
  work.requirements = {&kHonest, &kTopLeft, &kLongHeads};
  work.units = plan_units(work.requirements, 4, false, {});
  return work;
}

UnitResult result_with_everything() {
  UnitResult result;
  result.done = true;
  result.audit.rows = 3;
  result.audit.elements = 77;
  result.audit.outside = 1;
  result.audit.worst_fraction_of_radius = 0.1;
  result.audit.worst_radius_over_tolerance = 5e-324;
  result.audit.first_outside = "attention.forward lq=2 o[0,0,1,0]\twith a tab";
  result.cases.push_back({0, Verdict::pass, Reason::none, Output::lse, 1.0 / 3, 12345, ""});
  result.cases.push_back({1, Verdict::fail, Reason::wrong_value, Output::o, INFINITY, 1,
                          "two\nlines, a \\, a \t and a NUL" + std::string(1, '\0') + "."});
  result.cases.push_back({2, Verdict::hang, Reason::none, std::nullopt, 0, 0, " blanks "});
  return result;
}

TEST(JournalLine, ReadsBackWhatItPrints) {
  const WorkList work = work_list();
  const UnitResult written = result_with_everything();
  for (const WorkUnit& unit :
       {WorkUnit{WorkUnit::shared_stream(Operation::forward), 17},
        WorkUnit{WorkUnit::shared_stream(Operation::backward), 18},
        WorkUnit{WorkUnit::shared_stream(Operation::decode), 19}, WorkUnit{2, 0}}) {
    const std::string line = print_unit(work, unit, written);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find('\0'), std::string::npos);
    const auto read = parse_unit(work, line);
    ASSERT_TRUE(read) << line;
    EXPECT_EQ(read->first, unit);
    EXPECT_EQ(read->second.cases, written.cases);
    EXPECT_EQ(read->second.audit.rows, 3);
    EXPECT_EQ(read->second.audit.elements, 77);
    EXPECT_EQ(read->second.audit.outside, 1);
    EXPECT_EQ(read->second.audit.worst_fraction_of_radius, 0.1);
    EXPECT_EQ(read->second.audit.worst_radius_over_tolerance, 5e-324);
    EXPECT_EQ(read->second.audit.first_outside, written.audit.first_outside);
  }
}

TEST(JournalLine, NoPrefixOfALineReadsAsAnotherResult) {
  const WorkList work = work_list();
  const std::string line = print_unit(work, {}, result_with_everything());
  for (std::size_t length = 0; length < line.size(); ++length) {
    const auto read = parse_unit(work, line.substr(0, length));
    // A prefix that ends between two cases has fewer cases; the newline tells it apart in a file.
    if (read) {
      EXPECT_LE(read->second.cases.size(), 3u) << length;
    }
  }
}

TEST(JournalLine, RefusesWhatIsMalformed) {
  const WorkList work = work_list();
  const std::string audit = "\t0 0 0 0 0 ";
  ASSERT_TRUE(parse_unit(work, "unit\tforward 0" + audit + "\tA-HONEST pass none - 0 0\t"));
  for (const std::string& line : std::vector<std::string>{
           "",
           "unit",
           "unit\tforward 0",
           "Unit\tforward 0" + audit,
           "unit\tforward" + audit,
           "unit\tforward x" + audit,
           "unit\tNO-SUCH 0" + audit,
           "unit\tDecode 0" + audit,
           "unit\tforward 0\t0 0 0 0 0",
           "unit\tforward 0\t0 0 0 x 0 ",
           "unit\tforward 0" + audit + "\tA-HONEST pass none - 0 0",
           "unit\tforward 0" + audit + "\tNO-SUCH pass none - 0 0\t",
           "unit\tforward 0" + audit + "\tA-HONEST passed none - 0 0\t",
           "unit\tforward 0" + audit + "\tA-HONEST pass nothing - 0 0\t",
           "unit\tforward 0" + audit + "\tA-HONEST pass none - 0 0 0\t",
           "unit\tforward 0" + audit + "\tA-HONEST pass none - zero 0\t",
           "unit\tforward 0" + audit + "\tA-HONEST pass none - 0 0\tends in \\",
           "unit\tforward 0" + audit + "\tA-HONEST pass none - 0 0\tunknown \\x",
       })
    EXPECT_FALSE(parse_unit(work, line)) << line;
}

TEST(Journal, LinesOfSeveralThreadsDoNotMix) {
  const TemporaryFolder folder;
  const WorkList work = work_list();
  const JournalHeader header{{"suite", "test"}};
  JournalResults results;
  const std::string path = folder.file("j");
  {
    auto journal = Journal::open(path, false, header, work, results);
    ASSERT_TRUE(journal) << journal.error();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i)
          EXPECT_TRUE((*journal)->append(work, work.units[0], result_with_everything()));
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    if (lines > 0) {
      EXPECT_TRUE(parse_unit(work, line)) << line;
    }
  }
  EXPECT_EQ(lines, 801);
}

TEST(Journal, BelongsToOneRunAtATime) {
  const TemporaryFolder folder;
  const WorkList work = work_list();
  JournalResults results;
  const std::string path = folder.file("j");
  const auto first = Journal::open(path, false, {{"a", "b"}}, work, results);
  ASSERT_TRUE(first);
  const auto second = Journal::open(path, true, {{"a", "b"}}, work, results);
  EXPECT_EQ(second.error(), "journal " + path + ": another run is writing it");
}

TEST(Journal, RefusesUnitsThatTheRunDoesNotHave) {
  const TemporaryFolder folder;
  const WorkList work = work_list();
  JournalResults results;
  const std::string path = folder.file("j");
  {
    auto journal = Journal::open(path, false, {{"a", "b"}}, work, results);
    ASSERT_TRUE(journal);
    (*journal)->append(work, {WorkUnit::shared_stream(Operation::forward), 999},
                       result_with_everything());
    (*journal)->append(work, work.units[0], result_with_everything());
  }
  const auto resumed = Journal::open(path, true, {{"a", "b"}}, work, results);
  EXPECT_EQ(resumed.error(),
            "journal " + path + ": line 2 is of a case that this run does not have");
}

}  // namespace
}  // namespace attest
