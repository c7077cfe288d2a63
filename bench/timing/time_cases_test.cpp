// SPDX-License-Identifier: Apache-2.0
#include "bench/timing/time_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "attest/case_line.hpp"
#include "attest/plugin.hpp"
#include "bench/timing/sampled_oracle.hpp"
#include "bench/timing/yardstick.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/judge.hpp"
#include "harness/observe.hpp"
#include "reference/expected.hpp"

namespace attest {
namespace {

AttentionProblem problem_of(const std::string& line) {
  const auto problem = parse_case(line);
  EXPECT_TRUE(problem) << line << ": " << problem.error();
  return *problem;
}

std::shared_ptr<Subject> built_in(const char* name) {
  const auto spec = resolve_subject(name);
  OpenError error;
  std::shared_ptr<Subject> subject = spec ? open_in_host(*spec, error) : nullptr;
  EXPECT_TRUE(subject) << name << ": " << error.message;
  return subject;
}

/// Calls itself chunked and is wrong about one element of one row.
class OneWrongElement : public Kernel {
 public:
  static inline int calls_until_wrong = 0;
  void forward(const attest_attention& p, const Context&) override {
    accept_only(p, {DType::f32}, {Use::lse});
    const TensorView<const float> q(p.q), k(p.k), v(p.v);
    const TensorView<float> o(p.o), lse(p.lse);
    for (std::int64_t b = 0; b < q.extent(0); ++b)
      for (std::int64_t h = 0; h < q.extent(1); ++h)
        for (std::int64_t i = 0; i < q.extent(2); ++i) {
          std::vector<double> weights;
          double sum = 0;
          for (std::int64_t j = 0; j < k.extent(2); ++j) {
            double z = 0;
            for (std::int64_t c = 0; c < k.extent(3); ++c)
              z += static_cast<double>(q(b, h, i, c)) * static_cast<double>(k(b, h, j, c));
            weights.push_back(std::exp(p.scale * z));
            sum += weights.back();
          }
          for (std::int64_t c = 0; c < v.extent(3); ++c) {
            double x = 0;
            for (std::int64_t j = 0; j < k.extent(2); ++j)
              x += weights[static_cast<std::size_t>(j)] / sum * static_cast<double>(v(b, h, j, c));
            o(b, h, i, c) = static_cast<float>(x);
          }
          if (lse) lse(b, h, i) = static_cast<float>(std::log(sum));
        }
    if (calls_until_wrong-- <= 0) o(0, 0, q.extent(2) - 1, 0) += 1e-3f;
  }
};

std::shared_ptr<Subject> wrong_after(int calls) {
  OneWrongElement::calls_until_wrong = calls;
  static const attest_plugin plugin =
      detail::table<OneWrongElement>("one_wrong", "1", "dtype=f32 lse precision=f32");
  OpenError error;
  std::shared_ptr<Subject> subject = open_in_process(&plugin, error);
  EXPECT_TRUE(subject) << error.message;
  return subject;
}

BenchOptions quick() {
  BenchOptions options;
  options.samples = 5;
  options.sample_seconds = 1e-4;
  options.most_sag = 1;  // this machine may be busy: nothing is dropped here
  return options;
}

TEST(TimeCase, TakesTurnsAndCountsWhatWasTimed) {
  Yardsticks best;
  const AttentionProblem problem =
      problem_of("attention.forward hq=2 hkv=2 lq=64 lk=64 d=32 base=causal");
  const TimedCase timed = time_case(
      {{"naive", built_in("naive")}, {"chunked", built_in("chunked")}}, problem, quick(), best);
  EXPECT_TRUE(timed.refused.empty());
  ASSERT_EQ(timed.samples.size(), 10u);
  EXPECT_GT(best.fma_f32, 1e9);
  EXPECT_GT(best.integer, 1e8);
  for (const BenchSample& sample : timed.samples) {
    EXPECT_EQ(sample.name, sample.subject + "/attention.forward hq=2 lq=64 lk=64 d=32 base=causal");
    EXPECT_GT(sample.real_time, 0);
    EXPECT_GE(sample.iterations, 1);
    EXPECT_GT(sample.fma_f32, 1e8);
    EXPECT_LE(sample.fma_f32, best.fma_f32);
    EXPECT_GT(sample.integer, 1e7);
    EXPECT_LE(sample.integer, best.integer);
    EXPECT_EQ(sample.flops, 2 * (64.0 * 65 / 2) * 4 * 32);
    EXPECT_EQ(sample.repetitions, 5);
  }
}

TEST(TimeCase, SettlesYardsticksAndDropsWhatSagged) {
  std::vector<BenchSample> samples(3);
  for (BenchSample& sample : samples) sample.fma_f32 = 100, sample.integer = 10;
  samples[1].fma_f32 = 91, samples[2].integer = 8;
  Yardsticks best;
  best.fma_f32 = 100, best.integer = 10;
  settle(samples, best, 0.1);
  EXPECT_EQ(samples[0].yardstick, 1);
  EXPECT_EQ(samples[1].yardstick, 0.91);
  EXPECT_FALSE(samples[1].dropped);
  EXPECT_EQ(samples[2].yardstick, 0.8);
  EXPECT_TRUE(samples[2].dropped);
}

/// A run whose core was shared from beginning to end knows no better; the other one does.
TEST(TimeCase, SettlesRunsOfOneMachineTogether) {
  std::vector<BenchRecord> runs(3);
  for (BenchRecord& run : runs) {
    run.context.cpu = "a CPU";
    run.context.yardsticks.fma_f32 = 100, run.context.yardsticks.integer = 10;
    run.benchmarks.resize(1);
    run.benchmarks[0].fma_f32 = 98, run.benchmarks[0].integer = 9.8;
    settle(run.benchmarks, run.context.yardsticks);
  }
  runs[1].context.yardsticks.integer = 5;
  runs[1].benchmarks[0].integer = 5;
  settle(runs[1].benchmarks, runs[1].context.yardsticks);
  EXPECT_FALSE(runs[1].benchmarks[0].dropped);
  runs[2].context.host_name = "elsewhere";
  runs[2].context.yardsticks.integer = 20;
  const double elsewhere = runs[2].benchmarks[0].yardstick;
  settle_together(runs);
  EXPECT_EQ(runs[0].benchmarks[0].yardstick, 0.98);
  EXPECT_EQ(runs[1].benchmarks[0].yardstick, 0.5);
  EXPECT_TRUE(runs[1].benchmarks[0].dropped);
  EXPECT_EQ(runs[2].benchmarks[0].yardstick, elsewhere);
}

TEST(TimeCase, GivesNoTimeToAKernelThatIsWrong) {
  const AttentionProblem problem = problem_of("attention.forward lq=24 lk=24 d=8");
  Yardsticks best;
  const TimedCase timed = time_case({{"one_wrong", wrong_after(0)}, {"naive", built_in("naive")}},
                                    problem, quick(), best);
  ASSERT_EQ(timed.refused.size(), 1u);
  EXPECT_EQ(timed.refused[0].subject, "one_wrong");
  EXPECT_NE(timed.refused[0].why.find("o[0,0,23,0]: expected"), std::string::npos)
      << timed.refused[0].why;
  for (const BenchSample& sample : timed.samples) EXPECT_EQ(sample.subject, "naive");
  EXPECT_EQ(timed.samples.size(), 5u);
}

TEST(TimeCase, ChecksAgainAfterTheLastSample) {
  const AttentionProblem problem = problem_of("attention.forward lq=24 lk=24 d=8");
  Yardsticks best;
  const TimedCase timed = time_case({{"one_wrong", wrong_after(3)}}, problem, quick(), best);
  EXPECT_EQ(timed.refused.size(), 1u);
  EXPECT_TRUE(timed.samples.empty());
}

TEST(TimeCase, GivesNoTimeToWhatIsNotServed) {
  Yardsticks best;
  const TimedCase timed = time_case({{"contiguous", built_in("contiguous")}},
                                    problem_of("attention.forward lq=8 lk=8 d=8"), quick(), best);
  ASSERT_EQ(timed.refused.size(), 1u);
  EXPECT_EQ(timed.refused[0].why.rfind("not served", 0), 0u) << timed.refused[0].why;
}

TEST(TimeCase, TimesBackwardAndDecode) {
  Yardsticks best;
  for (const auto& [name, line] :
       {std::pair{"chunked", "attention.backward lq=32 lk=32 d=16"},
        std::pair{"rope_table", "attention.rope hq=2 lq=33 d=16 rope=half"},
        std::pair{"paged", "attention.decode hq=4 hkv=2 lk=65 d=16 page_size=16 cache=paged"}}) {
    const TimedCase timed = time_case({{name, built_in(name)}}, problem_of(line), quick(), best);
    for (const auto& refused : timed.refused) ADD_FAILURE() << name << ": " << refused.why;
    EXPECT_EQ(timed.samples.size(), 5u) << line;
  }
}

int chilled = 0;

TEST(TimeCase, TakesTensorsOutOfTheCachesOnceTheyAreLaidOut) {
  const auto subject = built_in("naive");
  const AttentionProblem problem = problem_of("attention.forward lq=4 lk=4 d=4");
  CallOptions options;
  options.before_call = [] { ++chilled; };
  EXPECT_TRUE(observe(*subject, problem, make_inputs(problem), options).ok());
  EXPECT_EQ(chilled, 1);
  BenchOptions cold = quick();
  cold.cold = true;
  Yardsticks best;
  const TimedCase timed = time_case({{"naive", subject}}, problem, cold, best);
  ASSERT_EQ(timed.samples.size(), 5u);
  for (const BenchSample& sample : timed.samples) EXPECT_EQ(sample.iterations, 1);
}

/// A strip of rows is the same call: the oracle gives the same numbers as for the whole.
TEST(SampledOracle, CutsStripsThatMeanTheSame) {
  const auto declaration = parse_declaration("dtype=f32 features=all precision=f32");
  const PrecisionProfile profile = *precision_preset("f32", DType::f32);
  int cut = 0;
  std::set<Base> bases;
  for (std::uint64_t n = 0; cut < 60; ++n) {
    const AttentionProblem problem = draw(*declaration, 3, "STRIPS", n);
    const AttentionInputs inputs = make_inputs(problem);
    if (problem.q_len < 3 || problem.kv_len < 1 || problem.batch < 1 || problem.v_head_dim < 1)
      continue;
    Strip strip{problem.batch - 1, problem.num_heads - 1, 1, 2};
    const auto part = cut_strip(problem, inputs, strip);
    if (!part) continue;
    ++cut;
    bases.insert(problem.base);
    ASSERT_EQ(problem_error(part->problem), std::nullopt) << print_case(problem);
    const Expected whole = expect(problem, inputs, profile);
    const Expected rows = expect(part->problem, part->inputs, profile);
    const auto first = static_cast<std::size_t>(
        ((strip.b * problem.num_heads + strip.h) * problem.q_len + strip.first) *
        problem.v_head_dim);
    for (std::size_t x = 0; x < rows.o.value.size(); ++x) {
      const double expected = whole.o.value[first + x];
      if (std::isnan(expected)) continue;
      EXPECT_NEAR(rows.o.value[x], expected,
                  1e-12 * std::fabs(expected) + rows.o.radius[x] + whole.o.radius[first + x])
          << print_case(problem);
    }
  }
  EXPECT_EQ(bases.size(), 3u);
}

TEST(SampledOracle, SeesAWrongRowOfALargeCall) {
  AttentionProblem problem =
      problem_of("attention.forward hq=2 hkv=2 lq=2048 lk=2048 d=128 base=causal");
  const auto subject = built_in("chunked");
  CallOptions options;
  options.limits.cpu_seconds = 100;
  const AttentionInputs inputs = make_inputs(problem);
  Observation seen = observe(*subject, problem, inputs, options);
  ASSERT_TRUE(seen.ok());
  const PrecisionProfile& profile = subject->declaration().profile_for(DType::f32);
  ASSERT_GT(triples(problem), std::int64_t{1} << 29);
  SharedAnswers answers(std::size_t{1} << 30);
  EXPECT_EQ(judge_for_timing(problem, inputs, profile, seen, answers), std::nullopt);
  // Every row of every head off by a thousandth: any sample shows it.
  for (double& x : seen.o) x *= 1.001;
  EXPECT_NE(judge_for_timing(problem, inputs, profile, seen, answers), std::nullopt);
}

TEST(SampledOracle, SeesAWrongRowInTheCache) {
  const auto subject = built_in("contiguous");
  const PrecisionProfile profile = subject->declaration().profile_for(DType::f32);
  for (const char* line : {"attention.decode hkv=2 hq=2 lk=9 d=8",
                           "attention.decode lk=9 d=8 rope=half cache_rotated=1"}) {
    const AttentionProblem problem = problem_of(line);
    const AttentionInputs inputs = make_inputs(problem);
    SharedAnswers answers(1 << 20);
    const Observation right = observe(*subject, problem, inputs, {});
    ASSERT_TRUE(right.ok()) << line;
    EXPECT_EQ(judge_for_timing(problem, inputs, profile, right, answers), std::nullopt) << line;
    Observation wrong = right;
    wrong.appended_k.values[5] *= 1.001;
    EXPECT_EQ(judge_for_timing(problem, inputs, profile, wrong, answers)
                  .value_or("")
                  .rfind("element 5 of the new rows of k_cache: expected ", 0),
              0u)
        << line;
    wrong = right;
    wrong.appended_v.values[0] = -right.appended_v.values[0];
    EXPECT_TRUE(judge_for_timing(problem, inputs, profile, wrong, answers)) << line;
  }
}

TEST(Yardstick, Measures) {
  EXPECT_GT(measure_fma(1), 1e9);
  EXPECT_GT(measure_integer(1), 1e8);
  EXPECT_GT(measure_exp(1), 1e7);
  EXPECT_GT(measure_read(1), 1e8);
  EXPECT_GT(measure_copy(1), 1e8);
}

}  // namespace
}  // namespace attest
