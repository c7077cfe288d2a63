// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/data.hpp"
#include "harness/judge.hpp"

namespace attest {
namespace {

/// o is the mean of v, summed in the order of the keys.
CaseResult check_mean(CaseContext& context, const AttentionProblem& p) {
  const Observation& seen = context.first(p);
  if (auto result = judge_call(seen, context.declaration(), p)) return *result;
  const Dense<double>& v = context.inputs(p).v;
  CaseResult result;
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i)
        for (std::int64_t c = 0; c < p.v_head_dim; ++c, ++flat) {
          float sum = 0;
          for (std::int64_t j = 0; j < p.kv_len; ++j)
            sum += static_cast<float>(v.at(b, h / (p.num_heads / p.num_kv_heads), j, c));
          const double mean = sum / static_cast<float>(p.kv_len ? p.kv_len : 1);
          if (seen.o[flat] == mean || (std::isnan(seen.o[flat]) && std::isnan(mean))) continue;
          result.verdict = Verdict::fail;
          result.reason = Reason::wrong_value;
          result.detail = "o is not the mean";
          return result;
        }
  return result;
}

const Requirement kMean{.id = "MEAN", .sentence = "o is the mean of v", .check = check_mean};
/// The same under another name, and of more than eight keys alone: slower to catch anything.
const Requirement kSlow{
    .id = "SLOW",
    .sentence = "o is the mean of many v",
    .applies = [](const AttentionProblem& p, const Declaration&) { return p.kv_len > 8; },
    .check = check_mean};

SelftestOptions options_for(const std::string& filter) {
  SelftestOptions options;
  options.catalogue =
      *load_catalogue(std::string(ATTEST_BINARY_DIR) + "/lib/attest-test/faults_plain.so");
  options.library_text = "faults.so";
  options.suite = options.honest_suite = "smoke";
  options.filter = filter;
  options.requirements = {&kMean, &kSlow};
  return options;
}

std::vector<Detection> run(const SelftestOptions& options) {
  RunError error;
  const Result<std::vector<Detection>> kernels = run_selftest(options, {}, error);
  EXPECT_TRUE(kernels) << error.message;
  return kernels ? *kernels : std::vector<Detection>{};
}

Detection run_one(const SelftestOptions& options) {
  const std::vector<Detection> kernels = run(options);
  EXPECT_EQ(kernels.size(), 1u);
  return kernels.empty() ? Detection{} : kernels.front();
}

TEST(Selftest, CatchesShrinksAndReplays) {
  const Detection fault = run_one(options_for("many_keys"));
  EXPECT_EQ(fault.outcome, Outcome::caught);
  ASSERT_EQ(fault.catches.size(), 2u);
  EXPECT_EQ(fault.catches[0].requirement, "MEAN");
  EXPECT_EQ(fault.catches[1].requirement, "SLOW");
  EXPECT_EQ(fault.catches[0].reason, Reason::wrong_value);
  EXPECT_EQ(fault.catches[0].failed, 1);
  EXPECT_GT(fault.catches[1].cases, fault.catches[0].cases);
  ASSERT_EQ(fault.minimal.size(), 1u);
  // Three keys are what the mistake needs.
  EXPECT_EQ(fault.minimal[0].pairs, 3);
  EXPECT_TRUE(fault.minimal[0].fails_again);
  EXPECT_TRUE(fault.minimal[0].fully_shrunk);
  EXPECT_NE(fault.minimal[0].replay.find("faults.so#many_keys.f32 --requirement MEAN"),
            std::string::npos)
      << fault.minimal[0].replay;
  EXPECT_EQ(fault.shown_by, "mean passes MEAN on the same case");
  EXPECT_TRUE(fault.accusations.empty());
}

TEST(Selftest, StopsSoonAfterTheFirstCatch) {
  SelftestOptions options = options_for("many_keys");
  options.problems_after_catch = 0;
  const Detection fault = run_one(options);
  ASSERT_FALSE(fault.catches.empty());
  EXPECT_EQ(fault.catches.back().cases, fault.cases);
}

TEST(Selftest, TellsAnEscapeFromWhatCannotBeSeen) {
  const Detection escaped = run_one(options_for("no_lse"));
  EXPECT_EQ(escaped.outcome, Outcome::escaped);
  EXPECT_EQ(escaped.shown_by.substr(0, 13), "lse differs: ") << escaped.shown_by;
  const Detection nothing = run_one(options_for("nothing"));
  EXPECT_EQ(nothing.outcome, Outcome::unreachable);
  EXPECT_EQ(nothing.problems, find_suite("smoke")->problems);
}

TEST(Selftest, CountsOnlyWhatFailsAgain) {
  const Detection tired = run_one(options_for("tired"));
  EXPECT_EQ(tired.outcome, Outcome::escaped);
  EXPECT_TRUE(tired.catches.empty());
  EXPECT_EQ(tired.flaky, (std::vector<std::string>{"MEAN", "SLOW"}));
}

TEST(Selftest, AcceptsTheHonestAndAccusesTheWrong) {
  const Detection honest = run_one(options_for("mean"));
  EXPECT_EQ(honest.outcome, Outcome::accepted);
  EXPECT_TRUE(honest.honest);
  EXPECT_GT(honest.cases, 0);
  EXPECT_EQ(honest.dtype, "all");
  const Detection liar = run_one(options_for("liar"));
  EXPECT_EQ(liar.outcome, Outcome::accused);
  ASSERT_FALSE(liar.accusations.empty());
  EXPECT_NE(liar.accusations[0].find("faults.so#liar.f32: MEAN wrong_value: o is not the mean; "
                                     "attest replay '"),
            std::string::npos)
      << liar.accusations[0];
}

TEST(Selftest, TestsAnHonestKernelInTheTypeThatIsAskedFor) {
  SelftestOptions options = options_for("mean");
  options.dtype = DType::f32;
  EXPECT_EQ(run_one(options).dtype, "f32");
  options.dtype = DType::bf16;
  RunError error;
  EXPECT_FALSE(run_selftest(options, {}, error));
}

TEST(Selftest, AccusesABaseThatFailsTheSameCase) {
  const Detection fault = run_one(options_for("like_liar"));
  EXPECT_EQ(fault.outcome, Outcome::unreachable);
  ASSERT_EQ(fault.accusations.size(), 1u);
  EXPECT_NE(fault.accusations[0].find("liar.f32, the base of like_liar: MEAN"), std::string::npos)
      << fault.accusations[0];
}

TEST(Selftest, AsksNothingOutOfScope) {
  SelftestOptions options = options_for("shared_heads");
  options.within = *parse_declaration("dtype=f32 gqa scale");
  EXPECT_EQ(run_one(options).outcome, Outcome::caught);
  options.within = *parse_declaration("dtype=f32 scale");
  EXPECT_EQ(run_one(options).outcome, Outcome::out_of_scope);
  options.within = *parse_declaration("dtype=bf16");
  EXPECT_EQ(run_one(options).outcome, Outcome::out_of_scope);
}

TEST(Selftest, IsTheSameForAnyNumberOfJobsAndGoesOn) {
  SelftestOptions options = options_for("*");
  options.shrink.tries = 0;
  std::vector<Detection> seen;
  options.on_result = [&](const Detection& kernel) { seen.push_back(kernel); };
  const std::vector<Detection> first = run(options);
  ASSERT_EQ(first.size(), 8u);
  EXPECT_EQ(seen.size(), 8u);
  // Honest kernels first, then as the catalogue has them.
  EXPECT_EQ(first[0].id, "mean");
  EXPECT_EQ(first[1].id, "liar");
  EXPECT_EQ(first[2].id, "many_keys");
  options.jobs = 3;
  const std::vector<Detection> second = run(options);
  ASSERT_EQ(second.size(), first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(second[i].id, first[i].id);
    EXPECT_EQ(second[i].outcome, first[i].outcome) << first[i].id;
    EXPECT_EQ(second[i].cases, first[i].cases) << first[i].id;
  }
  seen.clear();
  options.done = {first.begin(), first.end() - 1};
  const std::vector<Detection> resumed = run(options);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].id, "like_liar");
  EXPECT_EQ(std::vector<Detection>(resumed.begin(), resumed.end() - 1), options.done);
}

TEST(Selftest, StopsWhereItIsInterrupted) {
  SelftestOptions options = options_for("*");
  const std::atomic<bool> interrupted{true};
  options.interrupted = &interrupted;
  EXPECT_TRUE(run(options).empty());
}

TEST(Selftest, SaysWhatItCannotDo) {
  const auto refusal = [](const SelftestOptions& options) {
    RunError error;
    const auto kernels = run_selftest(options, {}, error);
    return kernels ? "ran" : (error.machine ? "machine: " : "") + error.message;
  };
  SelftestOptions options = options_for("zebra");
  EXPECT_EQ(refusal(options), options.catalogue.path + ": holds no kernel that was asked for");
  options = options_for("*");
  options.suite = "zebra";
  EXPECT_EQ(refusal(options), "no suite of the name 'zebra'");
  options = options_for("*");
  options.catalogue.entries[0].id = "missing";
  EXPECT_NE(refusal(options).find("has no kernel called 'missing'"), std::string::npos);
}

}  // namespace
}  // namespace attest
