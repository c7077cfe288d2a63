// SPDX-License-Identifier: Apache-2.0
#include "reports/detection.hpp"

#include <gtest/gtest.h>

#include <string>

#include "reports/atomic_file.hpp"
#include "reports/python_test.hpp"

namespace attest {
namespace {

DetectionReport sample() {
  DetectionReport report;
  report.tool_version = "1.2.3";
  report.commit = "0123456789abcdef";
  report.command = "attest selftest --suite quick";
  report.library = "/lib/faulty.so";
  report.suite = "quick";
  report.honest_suite = "smoke";
  report.seed = 1;
  report.requirements = {"MASK-NOLEAK", "ORACLE-O", "ROWS-EMPTY"};
  report.started = "2026-11-29T10:00:00Z";
  report.wall_seconds = 65;
  Detection honest;
  honest.id = "tile|64";
  honest.kind = "honest";
  honest.dtype = "all";
  honest.honest = true;
  honest.outcome = Outcome::accepted;
  honest.cases = 4321;
  Detection caught;
  caught.id = "causal_top_left";
  caught.kind = "mask";
  caught.sentence = "aligned to the top left";
  caught.reference = "NVIDIA/cutlass#2336";
  caught.dtype = "f32";
  caught.base = "plain";
  caught.outcome = Outcome::caught;
  caught.catches = {
      {"ORACLE-O", Verdict::fail, Reason::wrong_value, "attention.forward lq=9", 12, 0.5, 1, 1},
      {"MASK-NOLEAK", Verdict::crash, Reason::none, "attention.forward lq=8", 40, 0.75, 10, 3}};
  caught.minimal = {{"ORACLE-O", "attention.forward lq=2 base=causal", "wrong o", "attest replay x",
                     2, true, false}};
  caught.shown_by = "plain passes ORACLE-O on the same case";
  Detection bf16 = caught;
  bf16.dtype = "bf16";
  bf16.catches.resize(1);
  bf16.minimal.clear();
  report.kernels = {honest, caught, bf16};
  return report;
}

DetectionReport bad_sample() {
  DetectionReport report = sample();
  report.kernels[2].outcome = Outcome::escaped;
  report.kernels[2].catches.clear();
  report.kernels[2].shown_by = "o differs: attention.forward";
  report.kernels[2].flaky = {"ROWS-EMPTY"};
  report.kernels[0].outcome = Outcome::accused;
  report.kernels[0].accusations = {"tile|64: ORACLE-O wrong_value: \x1b[2J; attest replay"};
  report.incomplete = "interrupted";
  report.within = "dtype=f32,bf16";
  return report;
}

std::string validated(const std::string& arguments) {
  const Output output = validate("--selftest " + arguments);
  return output.exit_code == 0 ? "" : output.text;
}

TEST(DetectionJson, ObeysItsSchemaWhichNoticesEveryKey) {
  for (const DetectionReport& report : {sample(), bad_sample(), DetectionReport{}}) {
    const std::string path = testing::TempDir() + "attest-selftest.json";
    ASSERT_EQ(write_file(path, detection_json(report)), std::nullopt);
    EXPECT_EQ(validated(path), "");
  }
  const std::string path = testing::TempDir() + "attest-selftest-mutated.json";
  ASSERT_EQ(write_file(path, detection_json(bad_sample())), std::nullopt);
  EXPECT_EQ(validated("--mutate " + path), "");
}

TEST(DetectionJson, HasTheScore) {
  EXPECT_NE(detection_json(sample()).find(
                "\"score\": \"caught 1 of 1 faults, accused 0 of 1 honest kernels\""),
            std::string::npos);
}

TEST(DetectionLine, ReadsBackAsItself) {
  for (const Detection& kernel : bad_sample().kernels) {
    const std::string line = detection_line(kernel);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const Result<Detection> read = read_detection_line(line);
    ASSERT_TRUE(read) << read.error();
    EXPECT_EQ(*read, kernel);
  }
}

TEST(DetectionLine, RefusesWhatIsNone) {
  const std::string line = detection_line(sample().kernels[1]);
  EXPECT_EQ(read_detection_line(line.substr(0, line.size() / 2)).error(), "not JSON, or cut short");
  std::string other = line;
  other.replace(other.find("\"caught\""), 8, "\"lost\"");
  EXPECT_EQ(read_detection_line(other).error(), "kernel.outcome: 'lost' is none of the known ones");
  EXPECT_EQ(read_detection_line("{}").error(), "kernel: has no \"id\"");
}

TEST(DetectionScreen, EndsWithTheScore) {
  const std::string screen = detection_screen(sample());
  EXPECT_EQ(screen,
            "kind  faults  caught\n"
            "mask       1       1\n"
            "\n"
            "first catch after 0.5 s (median), 0.5 s (slowest), on one core\n"
            "1 of 1 fault caught by a requirement other than agreement with the oracle (100 %)\n"
            "smallest cases: 2 pairs of query and key (median); 1 of 1 replay\n"
            "by kernel: caught 2 of 2 faulty kernels, accused 0 of 1 honest ones\n"
            "caught 1 of 1 faults, accused 0 of 1 honest kernels\n");
}

TEST(DetectionScreen, SaysWhatEscapedAndWhoIsAccused) {
  const std::string screen = detection_screen(bad_sample());
  EXPECT_NE(screen.find("escaped: causal_top_left.bf16 (aligned to the top left); o differs: "
                        "attention.forward; failed once and not again: ROWS-EMPTY\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("accused: tile|64: ORACLE-O wrong_value: \\x1b[2J; attest replay\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("incomplete: interrupted\ncaught 0 of 1 planted bugs in that scope, "
                        "accused 1 of 1 honest kernels\n"),
            std::string::npos)
      << screen;
}

TEST(DetectionMarkdown, HasTheMatrix) {
  const std::string page = detection_markdown(sample());
  EXPECT_NE(page.find("**caught 1 of 1 faults, accused 0 of 1 honest kernels**"),
            std::string::npos);
  EXPECT_NE(page.find("Made by `attest selftest --suite quick` on 2026-11-29"), std::string::npos);
  // MASK-NOLEAK caught it in one of two dtypes, ROWS-EMPTY nothing.
  EXPECT_NE(page.find("| fault | MASK-NOLEAK | ORACLE-O |\n|---|:-:|:-:|\n"
                      "| `causal_top_left` | ○ | ● |\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("Requirements without a catch: ROWS-EMPTY."), std::string::npos) << page;
  EXPECT_NE(page.find("| `tile\\|64` |"), std::string::npos) << page;
}

}  // namespace
}  // namespace attest
