// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster.hpp"

#include <gtest/gtest.h>

#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

const Declaration kDeclaration = *parse_declaration(kFakeDeclaration);

AttentionProblem parse(const std::string& arguments) {
  return *parse_case("attention.forward " + arguments);
}

Finding finding_of(Verdict verdict, Reason reason, const std::string& detail) {
  Finding finding;
  finding.verdict = verdict;
  finding.reason = reason;
  finding.result.detail = detail;
  return finding;
}

TEST(WhatHappened, SaysItInPlainWords) {
  EXPECT_EQ(what_happened(finding_of(Verdict::fail, Reason::out_of_bounds_read,
                                     "read, 0 bytes past the end of k")),
            "reads past the end of k");
  EXPECT_EQ(what_happened(
                finding_of(Verdict::fail, Reason::out_of_bounds_write, "write, 4 bytes before o")),
            "writes before o");
  EXPECT_EQ(what_happened(finding_of(Verdict::fail, Reason::out_of_bounds_read, "somewhere")),
            "reads out of bounds");
  EXPECT_EQ(what_happened(finding_of(Verdict::hang, Reason::none, "no answer")),
            "does not return within its time limit");
  Finding wrong = finding_of(Verdict::fail, Reason::wrong_value, "");
  wrong.result.worst = Element{};
  wrong.result.worst->tensor = "lse";
  EXPECT_EQ(what_happened(wrong), "wrong lse");
}

TEST(Explains, NeedsTheFeaturesAndSizesOfBoth) {
  const AttentionProblem minimal = parse("lk=3 base=causal");
  const AttentionProblem found =
      parse("lq=5 lk=9 d=4 base=causal align=q_offset q_offset=1 mask=random");
  const Needs needs = needs_of(minimal, found, kDeclaration);
  // bottom_right is in the minimal case alone, so it is no need.
  EXPECT_TRUE(explains(needs, parse("lq=1 lk=3 base=causal align=top_left")));
  EXPECT_TRUE(explains(needs, parse("dtype=bf16 lq=7 lk=8 d=9 base=causal softcap=1")));
  EXPECT_FALSE(explains(needs, parse("lq=7 lk=8"))) << "no causal mask";
  EXPECT_FALSE(explains(needs, parse("lq=7 lk=2 base=causal"))) << "smaller than the minimum";
  const Needs in_bf16 =
      needs_of(parse("dtype=bf16 lk=3"), parse("dtype=bf16 lk=3 softcap=1"), kDeclaration);
  EXPECT_FALSE(explains(in_bf16, parse("lk=3"))) << "f32 is simpler and must have failed otherwise";
  EXPECT_TRUE(explains(in_bf16, parse("dtype=bf16 lk=4")));
}

TEST(Needs, OfTwoWaysToOneMinimumAreWhatTheyShare) {
  const AttentionProblem minimal = parse("d=2 dv=1 base=causal lk=3");
  const Needs a = needs_of(minimal, parse("d=4 dv=3 base=causal lk=4"), kDeclaration);
  const Needs b = needs_of(minimal, parse("d=2 dv=2 base=causal lq=0 lk=4"), kDeclaration);
  EXPECT_FALSE(explains(a, parse("d=2 base=causal lk=3"))) << "dv = d";
  EXPECT_TRUE(explains(common_needs(a, b), parse("d=2 base=causal lk=3")));
  EXPECT_TRUE(explains(common_needs(a, b), parse("d=2 base=causal lq=0 lk=3")));
}

TEST(AcceptedWhat, IsTheFeature) {
  EXPECT_EQ(accepted_what("accepts feature softcap, which it does not declare, and ignores it"),
            "feature softcap");
  EXPECT_EQ(accepted_what("something else"), "");
}

/// Runs the fake kernel and returns the causes.
std::vector<Cause> causes_of(std::vector<const Requirement*> requirements) {
  return run_fake(fake_options(std::move(requirements))).causes;
}

CaseResult wrong(const char* tensor) {
  CaseResult result = fake_failure(Reason::wrong_value, "wrong");
  result.worst = Element{};
  result.worst->tensor = tensor;
  return result;
}

TEST(Cluster, OneMistakeInBothOutputsIsOneCause) {
  const Requirement o{
      .id = "O", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        return p.softcap > 0 ? wrong("o") : CaseResult{};
      }};
  const Requirement lse{
      .id = "L", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        return p.softcap > 0 ? wrong("lse") : CaseResult{};
      }};
  const std::vector<Cause> causes = causes_of({&lse, &o});
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].sentence, "wrong o and lse where softcap");
  EXPECT_EQ(causes[0].caught_by, (std::vector<std::string>{"L", "O"}));
  EXPECT_EQ(causes[0].features, std::vector<std::string>{"softcap"});
}

TEST(Cluster, TwoMistakesUnderOneRequirementAreTwoCauses) {
  const Requirement both{
      .id = "O", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        const bool first = p.softcap > 0, second = p.sink != SinkKind::none;
        return first || second ? wrong("o") : CaseResult{};
      }};
  const Record record = run_fake(fake_options({&both}));
  const std::vector<Cause>& causes = record.causes;
  ASSERT_EQ(causes.size(), 2u) << fingerprint(record);
  std::vector<std::string> sentences{causes[0].sentence, causes[1].sentence};
  std::sort(sentences.begin(), sentences.end());
  EXPECT_EQ(sentences, (std::vector<std::string>{"wrong o where sink", "wrong o where softcap"}));
}

TEST(Cluster, ACrashIsOneCauseWhoeverSawIt) {
  const auto crash = [](CaseContext&, const AttentionProblem& p) {
    return p.kv_len > 3 ? fake_failure(Reason::none, "signal 11 (SIGSEGV)", Verdict::crash)
                        : CaseResult{};
  };
  const Requirement a{.id = "A", .sentence = "s", .check = crash};
  const Requirement b{.id = "B", .sentence = "s", .check = crash};
  const std::vector<Cause> causes = causes_of({&a, &b});
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].verdict, Verdict::crash);
  EXPECT_EQ(causes[0].caught_by.size(), 2u);
  EXPECT_EQ(causes[0].sentence.rfind("crashes: signal 11 (SIGSEGV) where lk > 1", 0), 0u)
      << causes[0].sentence;
}

TEST(Cluster, WhatFailsOnTheSameMinimalCaseIsOneCause) {
  const Requirement crash{
      .id = "A", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        return p.kv_len > 3 ? fake_failure(Reason::none, "signal 6 (SIGABRT)", Verdict::crash)
                            : CaseResult{};
      }};
  const Requirement modified{
      .id = "B", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        return p.kv_len > 3 ? fake_failure(Reason::input_modified, "q") : CaseResult{};
      }};
  const std::vector<Cause> causes = causes_of({&crash, &modified});
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].verdict, Verdict::crash);
  EXPECT_EQ(causes[0].caught_by.size(), 2u);
}

TEST(Cluster, AFailureInOneDtypeSaysSo) {
  const Requirement bf16{
      .id = "A", .sentence = "s", .check = [](CaseContext&, const AttentionProblem& p) {
        return p.dtype == DType::bf16 ? wrong("o") : CaseResult{};
      }};
  const std::vector<Cause> causes = causes_of({&bf16});
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].sentence, "wrong o where dtype=bf16");
  EXPECT_EQ(causes[0].dtypes, std::vector<std::string>{"bf16"});
}

TEST(Severity, AnAccidentSaysMoreThanAWrongValue) {
  EXPECT_LT(severity(Verdict::crash, Reason::none), severity(Verdict::fail, Reason::unwritten));
  EXPECT_LT(severity(Verdict::fail, Reason::unwritten), severity(Verdict::fail, Reason::nan_leak));
  EXPECT_LT(severity(Verdict::fail, Reason::wrong_value),
            severity(Verdict::fail, Reason::law_broken));
}

TEST(Cluster, MergesCausesThatTheDiagnosisExplainsAlike) {
  Record record;
  const auto cause = [&](int id, std::vector<std::string> hypotheses, std::int64_t cases,
                         std::vector<std::string> features, std::vector<std::string> caught_by) {
    Cause one;
    one.id = id;
    one.hypotheses = std::move(hypotheses);
    one.cases = cases;
    one.features = std::move(features);
    one.caught_by = std::move(caught_by);
    one.dtypes = {"f32"};
    record.causes.push_back(one);
    Failure failure;
    failure.cause = id;
    record.failures.push_back(failure);
  };
  cause(1, {"top_left"}, 10, {"causal", "gqa"}, {"ORACLE-O"});
  cause(2, {}, 5, {"sink"}, {"ORACLE-O"});
  cause(3, {}, 4, {"sink"}, {"ORACLE-LSE"});
  cause(4, {"top_left"}, 3, {"causal"}, {"LAW-PADDING"});
  cause(5, {"top_left", "strict"}, 2, {"causal"}, {"LAW-SHIFT"});
  merge_causes_of_one_diagnosis(record);
  ASSERT_EQ(record.causes.size(), 4u);
  EXPECT_EQ(record.causes[0].cases, 13);
  EXPECT_EQ(record.causes[0].features, std::vector<std::string>{"causal"});
  EXPECT_EQ(record.causes[0].caught_by, (std::vector<std::string>{"LAW-PADDING", "ORACLE-O"}));
  EXPECT_EQ(record.causes[0].dtypes, std::vector<std::string>{"f32"});
  // Nothing that fits is no common mistake.
  EXPECT_EQ(record.causes[1].id, 2);
  EXPECT_EQ(record.causes[2].id, 3);
  std::vector<int> of;
  for (const Failure& failure : record.failures) of.push_back(failure.cause);
  EXPECT_EQ(of, (std::vector<int>{1, 2, 3, 1, 4}));
}

}  // namespace
}  // namespace attest
