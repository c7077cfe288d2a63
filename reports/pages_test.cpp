// SPDX-License-Identifier: Apache-2.0
#include "reports/pages.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reports/sample_records_test.hpp"

namespace attest {
namespace {

/// One query and two keys; v lies between the rows of k.
FailureCall sample_call() {
  FailureCall call;
  call.library = "./libmine.so";
  call.kernel = "mine";
  call.alignment = 16;
  call.blocks = {{"q", "bf16", {0x3f80}, false},
                 {"k", "bf16", {0x0000, 0x3f80, 0x4000, 0x7fc1}, false},
                 {"seqlens_k", "i32", {0xffffffff}, false},
                 {"o", "bf16", {0x7fff}, true}};
  call.tensors = {{"q", 0, 0, {1, 1, 1, 1}, {1, 1, 1, 1}},
                  {"k", 1, 0, {1, 1, 2, 1}, {4, 4, 2, 1}},
                  {"v", 1, 1, {1, 1, 2, 1}, {4, 4, 2, 1}},
                  {"seqlens_k", 2, 0, {1}, {1}},
                  {"o", 3, 0, {1, 1, 1, 1}, {1, 1, 1, 1}}};
  call.numbers = {{"scale", 0.5}, {"softcap", 0}};
  call.integers = {{"window_left", -1}};
  call.outputs = {{"o", {0.5}, {0.0078125}, {0}}};
  return call;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

CauseView first_cause(const Record& record) { return causes_by_urgency(record).front(); }

TEST(Pages, ShowTheNumbersOfASmallCall) {
  const Record record = failing_sample();
  const FailureCall call = sample_call();
  const std::string page = failure_page(record, first_cause(record), &call, "cause-1.c", "int x;");
  EXPECT_TRUE(has(page, "# Cause 1: fail, wrong\\_value: wrong o where base=causal")) << page;
  EXPECT_TRUE(has(page, "- looks like: the causal mask is aligned top-left (cutlass#2336)"))
      << page;
  EXPECT_TRUE(has(page, record.failures[0].replay));
  // v is every second element of k's memory, from the second on.
  EXPECT_TRUE(has(page,
                  "`v` [1, 1, 2, 1], bf16:\n\n| | 0 |\n|---|---:|\n| 0,0,0 | 1 |\n"
                  "| 0,0,1 | nan |\n"))
      << page;
  EXPECT_TRUE(has(page, "| o[0,0,0,0] | 0.5 | 0 | 0.00781 | **wrong** |")) << page;
  EXPECT_TRUE(has(page, "`seqlens_k` [1], i32:\n\n| | 0 |\n|---|---:|\n|  | -1 |\n")) << page;
  EXPECT_TRUE(has(page, "```c\nint x;\n```"));
}

TEST(Pages, SayWhatIsTooLargeOrNotJudged) {
  const Record record = failing_sample();
  FailureCall call = sample_call();
  call.outputs[0].tolerance = {-1};
  call.blocks[0].bits.assign(65, 0x3f80);
  call.tensors[0].shape = {1, 1, 65, 1};
  const std::string page = failure_page(record, first_cause(record), &call, "", "");
  EXPECT_TRUE(has(page, "Too large to be shown: q [1, 1, 65, 1]."));
  EXPECT_TRUE(has(page, "| o[0,0,0,0] | 0.5 | 0 | not judged | |")) << page;
  EXPECT_TRUE(has(page, "too large to be written out as a program"));
  call.blocks[0].bits.assign(kMostProgramElements, 0);
  EXPECT_FALSE(fits_program(call));
}

TEST(Pages, AreSafeWhateverAKernelSays) {
  Record record = hostile_sample();
  record.failures[0].case_line = "*/ ``` \x1b[2J";
  const CauseView view{&record.causes[0], &record.failures[0]};
  FailureCall call = sample_call();
  call.library = "a\"b\\c\n?";
  const std::string program = failure_program(record, view, call);
  // The head is one comment, and ends where it should.
  EXPECT_EQ(program.find("*/"), program.find("shows the rest. */") + 16);
  EXPECT_TRUE(has(program, "#define LIBRARY \"a\\042b\\134c\\012\\077\"\n")) << program;
  const std::string page = failure_page(record, view, &call, "cause-1.c", program);
  EXPECT_FALSE(has(page, "\x1b"));
  EXPECT_TRUE(has(page, "````\n*/ ```"));
}

TEST(Program, WritesNumbersThatReadBackAsTheyWere) {
  const Record record = failing_sample();
  FailureCall call = sample_call();
  call.blocks[0] = {
      "q", "f32", {0x3dcccccd, 0x7f800000, 0xff800000, 0x7fc00001, 0x80000000, 0x00000001}, false};
  call.numbers = {{"scale", 0.1}};
  const std::string program = failure_program(record, first_cause(record), call);
  EXPECT_TRUE(has(program, "0.100000001f, INFINITY, -INFINITY, NAN, -0.0f, 1.40129846e-45f,"))
      << program;
  EXPECT_TRUE(has(program, "  problem.scale = 0.10000000000000001;\n"));
  EXPECT_TRUE(has(program, "static const int32_t seqlens_k_values[] = {\n    -1,"));
  EXPECT_TRUE(has(program, "0x0000, 0x3f80, 0x4000, 0x7fc1,  /* 0 1 2 nan */"));
  EXPECT_TRUE(has(program, "DLTensor v = make(k_data + 1, kDLBfloat, 16, 4, v_shape, v_strides);"));
  EXPECT_FALSE(has(program, "v_values"));
}

TEST(Program, CallsAComponentByItsName) {
  const Record record = failing_sample();
  FailureCall call;
  call.operation = "rope";
  call.is_component = true;
  call.blocks = {
      {"x", "f32", {0, 0}, false}, {"rope_cos", "f32", {0}, false}, {"y", "f32", {0, 0}, true}};
  call.tensors = {{"x", 0, 0, {1, 1, 1, 2}, {2, 2, 2, 1}},
                  {"rope_cos", 1, 0, {1, 1}, {1, 1}},
                  {"y", 2, 0, {1, 1, 1, 2}, {2, 2, 2, 1}}};
  call.integers = {{"rope_dim", 2}};
  call.numbers = {{"base", 10000}};
  call.outputs = {{"y", {0, 0}, {1, 1}, {0, 0}}};
  const std::string program = failure_program(record, first_cause(record), call);
  for (const char* part :
       {"#define OPERATION component\n", "inputs[] = {{\"x\", &x}, {\"cos\", &rope_cos}, };\n",
        "outputs[] = {{\"y\", &y}, };\n", "{\"rope_dim\", 0, 0, 2, 0}",
        "{\"base\", 1, 0, 0, 10000.0}", "kernel->component(state, \"rope\", inputs,",
        "compare(\"y\", &y, 1.0, y_expected"})
    EXPECT_TRUE(has(program, part)) << part << "\n" << program;
  EXPECT_FALSE(has(program, "attest_attention problem"));
  EXPECT_FALSE(has(program, "kernel->plan"));
}

TEST(Program, LetsTheCallWriteIntoACache) {
  const Record record = failing_sample();
  FailureCall call = sample_call();
  EXPECT_TRUE(has(failure_program(record, first_cause(record), call), "memcmp(q_data"));
  call.blocks[0].written = true;
  EXPECT_FALSE(has(failure_program(record, first_cause(record), call), "memcmp(q_data"));
}

TEST(Program, AsksForARefusalWhereOneIsOwed) {
  const Record record = failing_sample();
  FailureCall call = sample_call();
  call.refuse = true;
  const std::string program = failure_program(record, first_cause(record), call);
  EXPECT_TRUE(has(program, "#define MUST_REFUSE 1\n"));
  EXPECT_FALSE(has(program, "o_expected"));
}

}  // namespace
}  // namespace attest
