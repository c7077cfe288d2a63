// SPDX-License-Identifier: Apache-2.0
#include "reports/cost.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "reports/atomic_file.hpp"
#include "reports/python_test.hpp"
#include "reports/text.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

ModelShape tiny_model() {
  ModelShape model;
  model.name = "tiny";
  model.source = "this test";
  model.layers = 2, model.hidden = 8, model.heads = 4, model.kv_heads = 2, model.head_dim = 2;
  model.ffn = 16, model.vocab = 32;
  model.activation = "swiglu", model.norm = "rms_norm";
  model.windows = {4, 0};
  return model;
}

CostRecord tiny_cost() {
  CostRecord record;
  record.tool_version = "0.1.0", record.commit = "abc", record.command_line = "attest cost";
  record.model = "tiny", record.source = "this test", record.phase = "prefill";
  record.dtype = record.cache_dtype = "bf16";
  record.batch = 1, record.seq = 8192;
  record.machine = "h100";
  record.visible_pairs = 33558528;
  CostVariant gqa{"gqa", 2, 8.03e9, 131072, 1 << 30, {}, {}};
  gqa.parts = {{"head", "2 T C V", {1.05e9, 0, 12}, 525336576, 1e9, 0}};
  gqa.attention = {{"flash", {17.9e12, 177e9, 34.9e9}, 5.4e9, 0, 0, 3350, 0.0183, "compute"},
                   {"naive", {26.4e12, 139e9, 68.7e9}, 5.4e9, 14e6, 0, 4920, {}, ""}};
  CostVariant mha = gqa;
  mha.heads = "mha", mha.kv_heads = 4, mha.cache_bytes *= 2;
  record.variants = {gqa, mha};
  return record;
}

TEST(CostFiles, ReadBackAsTheyWereWritten) {
  const auto model = read_model(model_json(tiny_model()));
  ASSERT_TRUE(model) << model.error();
  EXPECT_EQ(model_json(*model), model_json(tiny_model()));
  const auto cost = read_cost(cost_json(tiny_cost()));
  ASSERT_TRUE(cost) << cost.error();
  EXPECT_EQ(cost_json(*cost), cost_json(tiny_cost()));
}

TEST(CostFiles, AreRefusedInOneLineThatNamesThePlace) {
  const std::string good = model_json(tiny_model());
  const std::pair<std::string, std::string> cases[] = {
      {replaced(good, "attest.model/1", "attest.model/2"),
       "schema 'attest.model/2' is not the one read here, attest.model/1"},
      {replaced(good, "\"schema\"", "\"scheme\""), "not a model of attest: no \"schema\""},
      {replaced(good, "\"hidden\": 8,", ""), "model: has no \"hidden\""},
      {replaced(good, "\"hidden\": 8", "\"hidden\": -8"),
       "model.hidden: must be a whole number, not negative"},
      {replaced(good, "\"hidden\": 8", "\"hidden\": 0"),
       "model.hidden: 0 is outside 1 to 10000000"},
      {replaced(good, "\"kv_heads\": 2", "\"kv_heads\": 3"),
       "model.kv_heads: 4 heads are no multiple of 3"},
      {replaced(good, "swiglu", "mish"), "model: activation 'mish' is none of the known ones"},
      {replaced(good, "[4, 0]", "[]"), "model.windows: one for each layer in turn, at least one"},
      {replaced(good, "\"head_dim\": 2", "\"head_dim\": 3"),
       "model.head_dim: odd, but RoPE turns pairs"},
      {replaced(good, "\"softcap\": 0.0", "\"softcap\": \"nan\""),
       "model.softcap: must be 0 or more"},
      {replaced(good, "\"name\"", "\"ffn\": 1, \"name\""), "key 'ffn' stands twice in one object"},
      {good.substr(0, 40), "not JSON, or cut short"},
      {std::string(2 << 20, ' '), "larger than the 1 MiB that a model may have"}};
  for (const auto& [text, error] : cases) {
    const auto model = read_model(text);
    ASSERT_FALSE(model) << text;
    EXPECT_EQ(model.error().substr(0, error.size()), error);
  }
  EXPECT_EQ(read_cost(replaced(cost_json(tiny_cost()), "prefill", "prefiII")).error(),
            "cost: phase 'prefiII' is none of the known ones");
  EXPECT_EQ(read_machine_file("/nowhere/a.json").error(),
            "/nowhere/a.json: No such file or directory");
}

TEST(CostFiles, AllThatComeWithTheCommandAreRead) {
  const std::filesystem::path bench = std::filesystem::path(ATTEST_SOURCE_DIR) / "bench";
  int models = 0, machines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(bench / "models")) {
    const auto model = read_model_file(entry.path());
    ASSERT_TRUE(model) << model.error();
    EXPECT_EQ(model->name, entry.path().stem());
    EXPECT_FALSE(model->source.empty());
    ++models;
  }
  for (const auto& entry : std::filesystem::directory_iterator(bench / "machines")) {
    const auto machine = read_machine_file(entry.path());
    ASSERT_TRUE(machine) << machine.error();
    EXPECT_EQ(machine->name, entry.path().stem());
    EXPECT_NE(machine->source.find("datasheet"), std::string::npos);
    ++machines;
  }
  EXPECT_EQ(models, 11);
  EXPECT_EQ(machines, 3);
}

TEST(CostSchemas, AcceptWhatIsWrittenAndNoticeWhatIsNot) {
  const auto file = [](const char* name, const std::string& text) {
    const std::string path = testing::TempDir() + "attest-" + name;
    EXPECT_EQ(write_file(path, text), std::nullopt);
    return path;
  };
  const std::string bench = std::string(ATTEST_SOURCE_DIR) + "/bench/";
  for (const std::string& arguments :
       {"--cost --mutate " + file("cost.json", cost_json(tiny_cost())),
        "--model --mutate " + file("model.json", model_json(tiny_model())),
        "--machine --mutate " + bench + "machines/h100.json", "--model " + bench + "models/*.json",
        "--machine " + bench + "machines/*.json"}) {
    const Output output = validate(arguments);
    EXPECT_EQ(output.exit_code, 0) << arguments << ": " << output.text;
  }
}

TEST(CostTables, SayWhatWasAskedFor) {
  EXPECT_EQ(cost_screen(tiny_cost(), false),
            R"(tiny, prefill of 1 x 8,192 tokens in bf16: 8.03 G parameters (15.0 GiB)

FLOPs of all layers (a multiply-add counts 2)
part               products  matrix  softmax   other   total    share  parameters
head               2 T C V   1.05 G        0      12  1.05 G    0.0 %       525 M
attention (flash)            17.9 T    177 G  34.9 G  18.1 T  100.0 %
all                          17.9 T    177 G  34.9 G  18.1 T  100.0 %      8.03 G

Attention: 33.6 M visible pairs, time by the roofline of h100
heads    way    matrix  softmax   other  bytes moved  FLOP/byte  peak extra     time  bound by
gqa (2)  flash  17.9 T    177 G  34.9 G      5.0 GiB   3.35e+03         0 B  18.3 ms  compute
gqa (2)  naive  26.4 T    139 G  68.7 G      5.0 GiB   4.92e+03    13.4 MiB        -
mha (4)  flash  17.9 T    177 G  34.9 G      5.0 GiB   3.35e+03         0 B  18.3 ms  compute
mha (4)  naive  26.4 T    139 G  68.7 G      5.0 GiB   4.92e+03    13.4 MiB        -

Keys and values in bf16 for 1 x 8,192 tokens
heads      a token    cache  parameters  saved of mha
gqa (2)  128.0 KiB  1.0 GiB      8.03 G          50 %
mha (4)  128.0 KiB  2.0 GiB      8.03 G           0 %
)");
  EXPECT_NE(cost_screen(tiny_cost(), true).find("525 M        0      12   525 M"),
            std::string::npos);
  EXPECT_NE(cost_markdown(tiny_cost(), false).find("| gqa (2) | flash | 17.9 T |"),
            std::string::npos);
  EXPECT_NE(cost_csv(tiny_cost())
                .find("tiny,prefill,bf16,1,8192,gqa,2,attention,flash,"
                      "17900000000000,177000000000,34900000000,5400000000,"),
            std::string::npos);
}

TEST(Tables, StayTextInASpreadsheet) {
  const Table table{"", {{"a"}, {"b"}}, {{"=1+1", "-2.5e3"}, {"x,\"y\"", "-x"}}};
  EXPECT_EQ(csv_table(table), "a,b\r\n'=1+1,-2.5e3\r\n\"x,\"\"y\"\"\",'-x\r\n");
}

TEST(SiText, HasThreeDigits) {
  EXPECT_EQ(si_text(0), "0");
  EXPECT_EQ(si_text(999), "999");
  EXPECT_EQ(si_text(999.6), "1 k");
  EXPECT_EQ(si_text(1.2345e12), "1.23 T");
  EXPECT_EQ(si_text(3e25), "3e+04 Z");
}

}  // namespace
}  // namespace attest
