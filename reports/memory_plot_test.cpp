// SPDX-License-Identifier: Apache-2.0
#include "reports/memory_plot.hpp"

#include <gtest/gtest.h>

#include "reports/atomic_file.hpp"
#include "reports/python_test.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

BenchSample sample(const std::string& subject, const std::string& line, double extra_bytes) {
  BenchSample one;
  one.subject = subject, one.case_line = line, one.extra_bytes = extra_bytes;
  one.name = subject + "/" + line;
  one.real_time = 1;
  return one;
}

BenchRecord record() {
  BenchRecord bench;
  for (const int length : {256, 1024, 512}) {
    const std::string sizes = " lq=" + std::to_string(length) + " lk=" + std::to_string(length);
    const double l = length;
    bench.benchmarks.push_back(sample("square", "attention.backward" + sizes, 8 * l * l));
    bench.benchmarks.push_back(sample("line", "attention.backward" + sizes, 1000 * l));
    bench.benchmarks.push_back(sample("nothing", "attention.backward" + sizes, 0));
  }
  return bench;
}

TEST(MemoryPlot, GrowthIsTheExponentAtTheLongEnd) {
  EXPECT_NEAR(growth({{256, 5.0 * 256 * 256}, {512, 5.0 * 512 * 512}}), 2, 1e-12);
  EXPECT_NEAR(growth({{1, 1e6}, {10, 70}, {100, 700}}), 1, 1e-12);
  EXPECT_NEAR(growth({{2, 9}, {4, 9}}), 0, 1e-12);
}

TEST(MemoryPlot, LinesAreCasesThatDifferInLengthAlone) {
  BenchRecord bench = record();
  bench.benchmarks.push_back(sample("line", "attention.backward lq=64 lk=64 d=128", 99));
  const std::vector<MemoryLine> lines = memory_lines(bench);
  ASSERT_EQ(lines.size(), 2u);  // what took nothing has no line; one length is none
  EXPECT_EQ(lines[0].title, "square");
  EXPECT_EQ(lines[1].title, "line");
  ASSERT_EQ(lines[1].points.size(), 3u);
  EXPECT_EQ(lines[1].points[1], (std::pair{512.0, 512000.0}));
  // With two operations each line says which.
  bench.benchmarks.push_back(sample("line", "attention.forward lq=64 lk=64", 10));
  bench.benchmarks.push_back(sample("line", "attention.forward lq=128 lk=128", 20));
  ASSERT_EQ(memory_lines(bench).size(), 3u);
  EXPECT_EQ(memory_lines(bench)[2].title, "line, forward");
}

TEST(MemoryPlot, SaysHowEachGrowsAndIsWellFormed) {
  std::vector<MemoryLine> lines = memory_lines(record());
  lines.push_back({"<\x1b>", {{256, 1}, {1024, 1}}});
  lines.push_back({"same end", lines[0].points});
  const std::string svg = memory_svg(lines);
  EXPECT_EQ(count(svg, ">square: L^2.00<"), 1u);
  EXPECT_EQ(count(svg, ">line: L^1.00<"), 1u);
  EXPECT_EQ(count(svg, "<circle"), 11u);
  const std::string path = testing::TempDir() + "attest-memory.svg";
  ASSERT_EQ(write_file(path, svg), std::nullopt);
  const Output output = python("-c \"import xml.dom.minidom as m; m.parse('" + path + "')\"");
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

}  // namespace
}  // namespace attest
