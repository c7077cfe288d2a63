// SPDX-License-Identifier: Apache-2.0
#include "harness/runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "attest/plugin.h"
#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

const std::vector<const Requirement*> kAll{&kHonest, &kTopLeft, &kLongHeads};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Runner, FindsBothPlantedMistakesAndNothingElse) {
  const Record record = run_fake(fake_options(kAll));
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  EXPECT_EQ(exit_code(record), ExitCode::failed);
  ASSERT_EQ(record.causes.size(), 2u);
  for (const Cause& cause : record.causes) {
    ASSERT_EQ(cause.caught_by.size(), 1u);
    const Failure& smallest = record.failures[static_cast<std::size_t>(cause.smallest)];
    EXPECT_EQ(smallest.cause, cause.id);
    EXPECT_EQ(smallest.reruns_failed, smallest.reruns);
    EXPECT_TRUE(smallest.fully_shrunk);
    const AttentionProblem minimal = *parse_case(smallest.case_line);
    if (cause.caught_by[0] == "B-TOPLEFT") {
      EXPECT_NE(std::find(cause.features.begin(), cause.features.end(), "causal"),
                cause.features.end());
      EXPECT_EQ(minimal.base, Base::causal);
      EXPECT_LE(minimal.q_len + minimal.kv_len, 3);
      EXPECT_EQ(cause.sentence, "wrong result where base=causal and lq != lk");
      EXPECT_EQ(minimal.head_dim, 1);
    } else {
      EXPECT_EQ(cause.verdict, Verdict::crash);
      EXPECT_LE(minimal.head_dim, 18);
      EXPECT_EQ(minimal.base, Base::full);
    }
  }
  const auto found = [&](const char* id) {
    return std::find_if(record.requirements.begin(), record.requirements.end(),
                        [&](const RequirementResult& r) { return r.id == id; });
  };
  EXPECT_EQ(found("A-HONEST")->counts.pass, kProblems);
  EXPECT_EQ(found("B-TOPLEFT")->counts.total(), kProblems);
  EXPECT_GT(found("B-TOPLEFT")->counts.fail, 5);
  EXPECT_GT(found("C-LONGHEADS")->counts.crash, 5);
  EXPECT_LE(found("C-LONGHEADS")->counts.total(), kProblems / 2);
}

TEST(Runner, GivesTheSameRecordForAnyNumberOfJobs) {
  RunOptions options = fake_options(kAll);
  const std::string one = fingerprint(run_fake(options));
  for (const int jobs : {2, 5}) {
    options.jobs = jobs;
    EXPECT_EQ(fingerprint(run_fake(options)), one) << jobs;
  }
  options.seed = 2;
  EXPECT_NE(fingerprint(run_fake(options)), one);
}

TEST(Runner, ShardsTogetherAreTheWhole) {
  RunOptions options = fake_options(kAll);
  RunError error;
  std::vector<std::string> whole = *list_cases(options, error);
  const Record all = run_fake(options);
  EXPECT_EQ(static_cast<std::int64_t>(whole.size()), all.counts.total());
  std::vector<std::string> parts;
  std::int64_t failures = 0, cases = 0;
  for (int i = 1; i <= 3; ++i) {
    options.shard = {i, 3};
    const std::vector<std::string> part = *list_cases(options, error);
    parts.insert(parts.end(), part.begin(), part.end());
    const Record record = run_fake(options);
    failures += record.counts.failures();
    cases += record.counts.total();
    EXPECT_EQ(record.counts.total(), static_cast<std::int64_t>(part.size()));
  }
  std::sort(whole.begin(), whole.end());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(cases, all.counts.total());
  EXPECT_EQ(failures, all.counts.failures());
}

TEST(Runner, GoesOnWhereItWasInterrupted) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  const std::string undisturbed = fingerprint(run_fake(options));
  options.journal_path = folder.file("run.journal");
  std::atomic<bool> interrupted{false};
  options.interrupted = &interrupted;
  const Record part = run_fake(options, [&](const Progress& progress) {
    if (progress.done >= 100) interrupted = true;
  });
  EXPECT_EQ(part.verdict, SuiteVerdict::incomplete);
  EXPECT_EQ(exit_code(part), ExitCode::suite_failed);
  EXPECT_EQ(part.scope.cut, cut_after(100, kUnits) + ", interrupted");
  EXPECT_NE(part.counts.failures(), 0);
  EXPECT_FALSE(part.failures.empty());

  interrupted = false;
  options.resume = true;
  std::int64_t first_done = -1;
  const Record rest = run_fake(options, [&](const Progress& progress) {
    if (first_done < 0) first_done = progress.done;
  });
  EXPECT_EQ(first_done, 101);
  EXPECT_EQ(fingerprint(rest), undisturbed);
}

TEST(Runner, ResumesFromAJournalTornAnywhere) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("run.journal");
  const std::string undisturbed = fingerprint(run_fake(options));
  const std::string journal = read_file(options.journal_path);
  ASSERT_GT(journal.size(), 10000u);
  options.resume = true;
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{5}, journal.find('\n'), journal.find('\n') + 1,
        journal.find('\n') + 7, journal.size() / 3, journal.size() - 1, journal.size()}) {
    write_file(options.journal_path, journal.substr(0, length));
    EXPECT_EQ(fingerprint(run_fake(options)), undisturbed) << length;
    EXPECT_EQ(read_file(options.journal_path).size(), journal.size()) << length;
  }
}

TEST(Runner, RefusesAJournalOfSomethingElse) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("j");
  run_fake(options);
  const std::string journal = read_file(options.journal_path);
  options.resume = true;
  options.seed = 2;
  EXPECT_EQ(refusal(options), "journal " + options.journal_path + ": of a run with seed 1, not 2");
  options.seed = 1;
  options.shard = {1, 2};
  EXPECT_EQ(refusal(options),
            "journal " + options.journal_path + ": of a run with shard 1/1, not 1/2");
  options.shard = {1, 1};

  // The second line damaged: neither torn nor to be guessed at.
  std::string damaged = journal;
  damaged[journal.find('\n') + 3] = '?';
  write_file(options.journal_path, damaged);
  EXPECT_EQ(refusal(options), "journal " + options.journal_path + ": line 2 is damaged");
  EXPECT_EQ(read_file(options.journal_path), damaged);

  write_file(options.journal_path, "my thesis\n");
  for (const bool resume : {true, false}) {
    options.resume = resume;
    EXPECT_EQ(refusal(options), "journal " + options.journal_path + ": exists and is no journal");
  }
  EXPECT_EQ(read_file(options.journal_path), "my thesis\n");

  options.journal_path = folder.file("no/such/folder");
  EXPECT_NE(refusal(options).find("No such file or directory"), std::string::npos);
}

TEST(Runner, DropsTheJournalOfACompleteRunThatNobodyNamed) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("j");
  options.keep_journal = false;
  run_fake(options);
  EXPECT_FALSE(std::filesystem::exists(options.journal_path));
}

TEST(Runner, KeepsThatJournalWhereItWasInterruptedWhileShrinking) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("j");
  options.keep_journal = false;
  std::atomic<bool> interrupted{false};
  options.interrupted = &interrupted;
  const Record part = run_fake(options, [&](const Progress& progress) {
    if (progress.shrinking) interrupted = true;
  });
  EXPECT_EQ(part.verdict, SuiteVerdict::incomplete);
  EXPECT_TRUE(std::filesystem::exists(options.journal_path));
  // A list that was stopped on purpose is complete: nothing is left to resume.
  interrupted = false;
  options.stop_at_first = true;
  run_fake(options);
  EXPECT_FALSE(std::filesystem::exists(options.journal_path));
}

TEST(Runner, RunsWithoutAJournalThatNobodyNamedWhereThereIsNoPlace) {
  RunOptions options = fake_options({&kHonest});
  options.journal_path = "/no/such/folder/j";
  options.keep_journal = false;
  EXPECT_EQ(run_fake(options).verdict, SuiteVerdict::conformant);
  options.resume = true;
  EXPECT_NE(refusal(options).find("/no/such/folder/j"), std::string::npos);
}

TEST(Runner, ListingCasesLeavesNoJournal) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("j");
  RunError error;
  ASSERT_TRUE(list_cases(options, error));
  EXPECT_FALSE(std::filesystem::exists(options.journal_path));
}

TEST(Runner, ATimeBudgetCutsTheListAndSaysWhere) {
  RunOptions options = fake_options(kAll);
  options.time_budget_seconds = 1e-9;
  Record record = run_fake(options);
  EXPECT_EQ(record.scope.cut, cut_after(0, kUnits) + ", by the time budget");
  EXPECT_EQ(record.verdict, SuiteVerdict::too_little_tested);
  EXPECT_EQ(exit_code(record), ExitCode::too_little_tested);
  options.cut_is_incomplete = true;
  record = run_fake(options);
  EXPECT_EQ(record.verdict, SuiteVerdict::incomplete);
  EXPECT_EQ(exit_code(record), ExitCode::suite_failed);
  options.time_budget_seconds = 3600;
  EXPECT_EQ(run_fake(options).scope.cut, "");
}

TEST(Runner, StopsAtTheFirstFailureOfTheList) {
  RunOptions options = fake_options(kAll);
  options.stop_at_first = true;
  const Record one = run_fake(options);
  EXPECT_EQ(one.causes.size(), 1u);
  EXPECT_LT(one.counts.total(), 200);
  EXPECT_NE(one.scope.cut.find("at the first failure"), std::string::npos);
  options.jobs = 4;
  EXPECT_EQ(fingerprint(run_fake(options)), fingerprint(one));
}

TEST(Runner, StopsAtTheFirstFailureAlsoOfAJournal) {
  const TemporaryFolder folder;
  RunOptions options = fake_options(kAll);
  options.journal_path = folder.file("j");
  run_fake(options);
  options.resume = true;
  options.stop_at_first = true;
  const std::string resumed = fingerprint(run_fake(options));
  options.journal_path.clear();
  options.resume = false;
  EXPECT_EQ(resumed, fingerprint(run_fake(options)));
}

CaseResult check_hang(CaseContext&, const AttentionProblem&) {
  return fake_failure(Reason::none, "over the limit", Verdict::hang);
}

TEST(Runner, AKernelThatAlwaysHangsEndsTheListEarly) {
  const Requirement hangs{.id = "H", .sentence = "returns", .check = check_hang};
  RunOptions options = fake_options({&hangs});
  const Record record = run_fake(options);
  EXPECT_EQ(record.counts.hang, 500);
  EXPECT_EQ(record.scope.cut,
            cut_after(500, kProblems) + ", at 500 problems that hung or ate memory");
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
  options.jobs = 3;
  EXPECT_EQ(fingerprint(run_fake(options)), fingerprint(record));
}

TEST(Runner, TimeLostToHangsEndsTheListToo) {
  const Requirement hangs{
      .id = "H", .sentence = "returns", .check = [](CaseContext&, const AttentionProblem& problem) {
        if (problem.q_len % 2 == 0) return CaseResult{};
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return fake_failure(Reason::none, "over the limit", Verdict::hang);
      }};
  RunOptions options = fake_options({&hangs});
  options.most_lost_seconds = 0.05;
  const Record record = run_fake(options);
  EXPECT_GE(record.counts.hang, 1);
  EXPECT_LE(record.counts.hang, 10);
  EXPECT_GT(record.counts.pass, 0);
  EXPECT_NE(record.scope.cut.find("problems that hung or ate memory"), std::string::npos);
}

/// There is no time left for causes, and ten reruns are asked for.
RunOptions late_options(const Requirement& requirement) {
  RunOptions options = fake_options({&requirement});
  options.finding_seconds = 0;
  options.reruns = 10;
  return options;
}

TEST(Runner, LateRerunsEndWithOneThatFails) {
  const Requirement hangs{.id = "H", .sentence = "returns", .check = check_hang};
  const Record record = run_fake(late_options(hangs));
  ASSERT_FALSE(record.failures.empty());
  EXPECT_EQ(record.failures[0].reruns, 1);
  EXPECT_EQ(record.failures[0].reruns_failed, 1);
  EXPECT_EQ(record.failures[0].verdict, Verdict::hang);
}

/// Wrong on its first call for a problem, and then never again.
TEST(Runner, LateRerunsGoOnWhereOnePasses) {
  static std::set<std::string> seen;
  seen.clear();
  const Requirement once{
      .id = "O", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& problem) {
        return seen.insert(print_case(problem)).second ? fake_failure(Reason::wrong_value, "wrong")
                                                       : CaseResult{};
      }};
  const Record record = run_fake(late_options(once));
  ASSERT_FALSE(record.failures.empty());
  EXPECT_EQ(record.failures[0].reruns, 10);
  EXPECT_EQ(record.failures[0].reruns_failed, 0);
}

CaseResult check_refused(CaseContext&, const AttentionProblem&) {
  CaseResult result;
  result.verdict = Verdict::unsupported;
  result.detail = "refused";
  return result;
}

TEST(Runner, AKernelThatRefusesEverythingIsTooLittleTested) {
  const Requirement refused{.id = "R", .sentence = "s", .check = check_refused};
  // What passes because the kernel refuses must not make up for it.
  const Requirement contract{
      .id = "S",
      .sentence = "s",
      .adapt = [](AttentionProblem problem,
                  const Declaration&) { return std::optional<AttentionProblem>(problem); },
      .check = [](CaseContext&, const AttentionProblem&) { return CaseResult{}; },
      .share = 1000};
  const Record record = run_fake(fake_options({&refused, &contract}));
  EXPECT_EQ(record.verdict, SuiteVerdict::too_little_tested);
  EXPECT_EQ(exit_code(record), ExitCode::too_little_tested);
  EXPECT_EQ(record.scope.refused_share, 1.0);
  EXPECT_EQ(record.counts.unsupported, kProblems);
}

TEST(Runner, AnAdvisoryRequirementWarns) {
  const Requirement advisory{
      .id = "A", .sentence = "s", .level = Level::advisory, .check = kTopLeft.check};
  const Record record = run_fake(fake_options({&advisory}));
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  EXPECT_GT(record.counts.warn, 0);
  EXPECT_EQ(record.counts.fail, 0);
}

TEST(Runner, SkipsWhatIsNotPromisedAndSaysSo) {
  const Requirement skipped{
      .id = "N",
      .sentence = "s",
      .skip = [](const Declaration&) { return std::optional<std::string>("not promised: x"); },
      .check = check_hang};
  RunOptions options = fake_options({&kHonest, &skipped});
  const Record record = run_fake(options);
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  ASSERT_EQ(record.requirements.size(), 2u);
  EXPECT_EQ(record.requirements[1].skipped, "not promised: x");
  EXPECT_EQ(record.requirements[1].counts.total(), 0);
  options.filter = "Z*";
  EXPECT_EQ(refusal(options), "no requirement matches the filter 'Z*'");
  // A filter that leaves nothing to run leaves no pass.
  options.filter = "N";
  EXPECT_EQ(exit_code(run_fake(options)), ExitCode::too_little_tested);
}

TEST(Runner, RunsTheCasesOfAFile) {
  RunOptions options = fake_options(kAll);
  options.cases_name = "known.txt";
  options.case_lines = {"attention.forward lq=2 lk=3 d=4 base=causal", "attention.forward d=2"};
  options.case_line_numbers = {3, 9};
  const Record record = run_fake(options);
  EXPECT_EQ(record.suite, "cases:known.txt");
  EXPECT_EQ(record.counts.total(), 6);
  EXPECT_EQ(record.counts.fail, 1);
  options.case_lines[1] = "attention.forward d=2 frobnicate=1";
  EXPECT_EQ(refusal(options).rfind("known.txt:9: ", 0), 0u) << refusal(options);
  options.case_lines[1] = "attention.forward lq=1000000 lk=1000000 mask=random";
  EXPECT_NE(refusal(options).find("bytes of memory"), std::string::npos) << refusal(options);
}

TEST(Runner, ExpectedFailuresDoNotCountWhileTheyFailForTheirReason) {
  RunOptions options = fake_options({&kHonest, &kTopLeft});
  Expectation known;
  known.requirement = "B-TOPLEFT";
  known.pattern = "*base=causal*";
  known.reason = Reason::wrong_value;
  known.until = "-";
  known.why = "known";
  options.expectations = {known};
  Record record = run_fake(options);
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  EXPECT_EQ(exit_code(record), ExitCode::conformant);
  EXPECT_EQ(record.expectations[0].state, "met");
  EXPECT_TRUE(record.failures[0].expected);
  EXPECT_EQ(record.failures[0].expected_why, "known");

  options.expectations[0].reason = Reason::unwritten;
  record = run_fake(options);
  EXPECT_EQ(record.expectations[0].state, "wrong_reason");
  EXPECT_EQ(exit_code(record), ExitCode::failed);

  options.expectations[0].reason = Reason::wrong_value;
  options.expectations[0].until = "2001-01-01";
  record = run_fake(options);
  EXPECT_EQ(record.expectations[0].state, "unused");
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);

  options.expectations[0] = known;
  options.expectations[0].requirement = "A-HONEST";
  options.expectations.push_back(known);
  record = run_fake(options);
  EXPECT_EQ(record.expectations[0].state, "stale");
  EXPECT_EQ(record.verdict, SuiteVerdict::conformant);
  EXPECT_EQ(exit_code(record), ExitCode::failed);
}

TEST(Runner, ACaseWithItsRequirementIsCheckedByNoOther) {
  RunOptions options = fake_options({&kHonest, &kTopLeft, &kLongHeads});
  options.cases_name = "last-failed";
  options.last_failed = true;
  const std::string causal = "attention.forward lq=2 lk=3 base=causal";
  options.case_lines = {causal, "attention.forward d=64", "attention.forward d=32"};
  options.case_requirements = {"B-TOPLEFT", "A-HONEST", "C-LONGHEADS"};
  RunError error;
  const auto list = list_cases(options, error);
  ASSERT_TRUE(list) << list.error();
  EXPECT_EQ(*list,
            (std::vector<std::string>{"B-TOPLEFT " + causal, "A-HONEST attention.forward d=64",
                                      "C-LONGHEADS attention.forward d=32"}));
  const Record record = run_fake(options);
  EXPECT_EQ(record.suite, "last-failed");
  EXPECT_EQ(record.counts.total(), 3);
  EXPECT_EQ(record.counts.pass, 1);
  EXPECT_EQ(record.verdict, SuiteVerdict::not_conformant);
}

}  // namespace
}  // namespace attest
