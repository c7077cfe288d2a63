// SPDX-License-Identifier: Apache-2.0
#include "reports/bench.hpp"

#include <gtest/gtest.h>

#include "reports/atomic_file.hpp"
#include "reports/python_test.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

BenchRecord sample() {
  BenchRecord record;
  record.context.cpu = "a CPU";
  record.context.environment = {{"OMP_NUM_THREADS", "2"}};
  record.context.yardsticks = {100e9, 10e9, 12e9, 1e9, 5e9};
  for (const char* subject : {"naive", "blas"})
    for (int i = 0; i < 3; ++i) {
      BenchSample one;
      one.subject = subject;
      one.case_line = "attention.forward lq=64";
      one.name = one.run_name = one.subject + "/" + one.case_line;
      one.repetitions = 3, one.repetition_index = i, one.iterations = 10;
      one.real_time = (one.subject == "naive" ? 2e6 : 1e6) * (1 + 0.01 * i);
      one.cpu_time = one.real_time;
      one.yardstick = i == 2 ? 0.5 : 1;
      one.fma_f32 = 100e9 * one.yardstick, one.integer = 5e9;
      one.dropped = i == 2;
      one.flops = 1e7, one.bytes = 1e6, one.extra_bytes = 4096;
      record.benchmarks.push_back(one);
    }
  record.null_comparison =
      BenchChange{"naive", Change::same, 2e-3, 2e-3, 1.001, 0.99, 1.01, 0.5, 20, 20, 0};
  record.refused = {{"wrong", "attention.forward lq=64", "o[0,0,1,0]: expected 1, got 2"}};
  return record;
}

TEST(BenchFiles, ReadBackAsTheyWereWritten) {
  for (const BenchRecord& record : {sample(), BenchRecord{}}) {
    const auto again = read_bench(bench_json(record));
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(bench_json(*again), bench_json(record));
  }
}

TEST(BenchFiles, AreRefusedInOneLineThatNamesThePlace) {
  const std::string good = bench_json(sample());
  EXPECT_EQ(read_bench(replaced(good, "bench/1", "bench/9")).error(),
            "schema 'attest.bench/9' is not the one read here, attest.bench/1");
  EXPECT_EQ(read_bench(replaced(good, "2000000.0", "0")).error(),
            "bench.benchmarks[0].real_time: must be above 0");
  EXPECT_EQ(read_bench(replaced(good, "2000000.0", "\"nan\"")).error(),
            "bench.benchmarks[0].real_time: must be above 0");
  EXPECT_EQ(read_bench(replaced(good, "\"iteration\"", "\"aggregate\"")).error(),
            "bench.benchmarks[0]: run_type 'aggregate' is none of the known ones");
  EXPECT_EQ(read_bench(replaced(good, "\"same\"", "\"equal\"")).error(),
            "bench.null_comparison.verdict: 'equal' is none of the known ones");
  EXPECT_FALSE(read_bench(good.substr(0, good.size() / 2)));
}

TEST(BenchSchema, AcceptsWhatIsWrittenAndNoticesWhatIsNot) {
  const std::string path = testing::TempDir() + "attest-bench.json";
  ASSERT_EQ(write_file(path, bench_json(sample())), std::nullopt);
  const Output output = validate("--bench --mutate " + path);
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

TEST(BenchTables, SayWhatWasMeasured) {
  EXPECT_EQ(
      bench_screen(sample()),
      R"(a CPU: FMA 100 G FLOP/s, integer 5 G 1/s, exp 1 G 1/s, read 10 G bytes/s, copy 12 G bytes/s

case                     kernel     time  spread  FLOP/s  of FMA  bytes/s  peak extra  to first  samples  dropped
attention.forward lq=64  naive   2.01 ms   1.0 %  4.98 G   5.0 %    498 M     4.0 KiB                  2        1
                         blas    1.01 ms   1.0 %  9.95 G  10.0 %    995 M     4.0 KiB       0.5        2        1

naive against itself: same, +0.1 % (-1.0 % to +1.0 %)

no time: wrong on attention.forward lq=64: o[0,0,1,0]: expected 1, got 2
)");
  const std::vector<BenchChange> changes{
      {"a", Change::slower, 1e-3, 1.1e-3, 1.1, 1.08, 1.12, 1e-6, 20, 20, 0},
      {"b", Change::unclear, 1e-6, 1.04e-6, 1.04, 0.99, 1.09, 0.08, 20, 19, 83}};
  EXPECT_EQ(
      terminal_table(change_table(changes, "old.json", "new.json")),
      R"(benchmark  verdict  old.json  new.json   change      95 % interval        p  samples  would settle it
a          slower       1 ms    1.1 ms  +10.0 %  +8.0 % to +12.0 %  < 0.001   20, 20
b          unclear      1 us   1.04 us   +4.0 %   -1.0 % to +9.0 %    0.080   20, 19  83 samples of each
)");
  EXPECT_EQ(change_summary(changes), "1 slower, 0 faster, 0 same, 1 unclear");
  EXPECT_EQ(terminal_table(runs_table({"a.json", "b.json"}, {"x", "y"}, {{1e-3, 2e-3}, {0, 5}})),
            R"(benchmark  a.json  b.json  ratio
x            1 ms    2 ms      2
y               -     5 s      -
)");
}

}  // namespace
}  // namespace attest
