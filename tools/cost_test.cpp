// SPDX-License-Identifier: Apache-2.0
// Costs of known models against what was published of them.
#include "reports/cost.hpp"

#include <gtest/gtest.h>

#include "bench/cost/model_cost.hpp"

namespace attest {
namespace {

ModelShape model(const std::string& name) {
  const auto model =
      read_model_file(std::string(ATTEST_SOURCE_DIR) + "/bench/models/" + name + ".json");
  EXPECT_TRUE(model) << model.error();
  return *model;
}

CostQuery query(Phase phase, std::int64_t batch, std::int64_t seq,
                std::initializer_list<const char*> ways) {
  CostQuery query;
  query.phase = phase;
  query.batch = batch, query.seq = seq;
  for (const char* way : ways) query.ways.push_back(find_attention_cost_model(way));
  return query;
}

double total(const CostFlops& flops) { return flops.matrix + flops.softmax + flops.other; }

/// The sizes of the checkpoints, counted by their safetensors files.
TEST(ModelCost, HasTheParametersOfTheCheckpoints) {
  const std::pair<const char*, double> published[] = {
      {"gpt-2-small", 124'439'808},     {"llama-2-7b", 6'738'415'616},
      {"llama-2-70b", 68'976'648'192},  {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},  {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704}, {"gemma-2-9b", 9'241'705'984},
      {"qwen-2.5-7b", 7'615'616'512},   {"gpt-oss-20b", 20'914'757'184}};
  for (const auto& [name, parameters] : published) {
    const ModelShape shape = model(name);
    EXPECT_EQ(parameters_of(shape, shape.kv_heads), parameters) << name;
  }
  EXPECT_NEAR(parameters_of(model("gpt-3-175b"), 96), 175e9, 0.5e9);
}

/// Brown et al. 2020, table D.1: 3.14e23 for 300e9 tokens, attention left out.
TEST(ModelCost, OfTrainingGpt3IsTheOneOfItsPaper) {
  const auto cost = model_cost(model("gpt-3-175b"), query(Phase::train, 8, 2048, {}));
  ASSERT_TRUE(cost) << cost.error();
  double flops = 0;
  for (const CostPart& part : cost->variants[0].parts) flops += total(part.flops);
  EXPECT_NEAR(flops / (8 * 2048) * 300e9, 3.14e23, 0.02e23);
}

/// Scores and weights of one layer, which teaching texts give as 1.2 GB.
TEST(ModelCost, OfGpt3sScoreMatricesIsThirteenGigabytes) {
  CostQuery asked = query(Phase::prefill, 8, 2048, {"materialised"});
  asked.dtype = DType::f16;
  const auto cost = model_cost(model("gpt-3-175b"), asked);
  ASSERT_TRUE(cost) << cost.error();
  EXPECT_EQ(cost->variants[0].attention[0].extra_bytes, 2.0 * 8 * 96 * 2048 * 2048 * 2);
  EXPECT_NEAR(cost->variants[0].attention[0].extra_bytes, 12.9e9, 0.05e9);
}

TEST(ModelCost, OfCaches) {
  const ModelShape shape = model("llama-3-8b");
  CostQuery asked = query(Phase::decode, 1, 4096, {});
  asked.heads = {"mha", "gqa", "mqa"};
  const auto cost = model_cost(shape, asked);
  ASSERT_TRUE(cost) << cost.error();
  ASSERT_EQ(cost->variants.size(), 3u);
  EXPECT_EQ(cost->variants[0].heads, "gqa");
  EXPECT_EQ(cost->variants[0].cache_bytes, 512.0 * (1 << 20));
  EXPECT_EQ(cost->variants[1].heads, "mha");
  EXPECT_EQ(1 - cost->variants[2].cache_bytes / cost->variants[1].cache_bytes, 0.96875);
  for (const char* name :
       {"gpt-2-small", "gpt-3-175b", "llama-2-70b", "gemma-2-9b", "gpt-oss-20b"}) {
    const ModelShape other = model(name);
    EXPECT_EQ(
        cache_bytes(other, other.kv_heads, 3, 500, 2),
        2.0 * static_cast<double>(other.layers * 3 * 500 * other.kv_heads * other.head_dim) * 2);
  }
  asked.cache = *parse_cache_type("int4");
  EXPECT_EQ(model_cost(shape, asked)->variants[0].cache_bytes, 128.0 * (1 << 20));
}

/// 4 B H L^2 D with every pair, 2 B H L (L + 1) D of those that a causal mask shows.
TEST(ModelCost, OfAttentionCountsVisiblePairs) {
  const auto cost = model_cost(model("llama-3-8b"),
                               query(Phase::prefill, 1, 8192, {"definition", "materialised"}));
  ASSERT_TRUE(cost) << cost.error();
  const auto& attention = cost->variants[0].attention;
  const double heads = 32.0 * 32, pairs = 8192.0 * 8193 / 2;
  EXPECT_EQ(cost->visible_pairs, heads * pairs);
  EXPECT_EQ(attention[0].flops.matrix, heads * pairs * 4 * 128);
  EXPECT_EQ(attention[1].flops.matrix, heads * 8192 * 8192 * 4 * 128);
}

/// A query of Mistral sees 4,096 keys, itself among them; every second layer of Gemma and gpt-oss
/// has no window.
TEST(ModelCost, KnowsTheWindowsOfLayers) {
  const auto pairs = [](const char* name, std::int64_t seq) {
    const auto cost = model_cost(model(name), query(Phase::prefill, 1, seq, {}));
    EXPECT_TRUE(cost) << cost.error();
    return cost->visible_pairs;
  };
  const auto windowed = [](double n, double w) { return n * w - w * (w - 1) / 2; };
  const auto causal = [](double n) { return n * (n + 1) / 2; };
  EXPECT_EQ(pairs("mistral-7b", 8192), 32.0 * 32 * windowed(8192, 4096));
  EXPECT_EQ(pairs("gemma-2-9b", 8192), 16.0 * 21 * (windowed(8192, 4096) + causal(8192)));
  EXPECT_EQ(pairs("gpt-oss-20b", 1000), 64.0 * 12 * (windowed(1000, 128) + causal(1000)));
}

/// One token of a dense model costs two operations a parameter, but for those of the embedding.
TEST(ModelCost, OfOneTokenIsTwiceTheParameters) {
  const ModelShape shape = model("llama-2-7b");
  const auto cost = model_cost(shape, query(Phase::decode, 1, 1, {}));
  ASSERT_TRUE(cost) << cost.error();
  double matrix = 0;
  for (const CostPart& part : cost->variants[0].parts) matrix += part.flops.matrix;
  const double norms = 65 * 4096, embedding = 32000.0 * 4096;
  EXPECT_EQ(matrix, 2 * (parameters_of(shape, 32) - norms - embedding));
}

TEST(ModelCost, OfAMixtureReadsTheExpertsThatTokensChoose) {
  const ModelShape shape = model("mixtral-8x7b");
  const auto ffn = [&](std::int64_t batch) {
    return model_cost(shape, query(Phase::decode, batch, 64, {}))->variants[0].parts[2];
  };
  const double expert = 32 * 3 * 4096.0 * 14336 * 2;  // bytes, of all layers
  EXPECT_NEAR(ffn(1).bytes, 2 * expert, 0.01 * expert);
  EXPECT_NEAR(ffn(64).bytes, 8 * expert, 0.1 * expert);
  EXPECT_EQ(ffn(64).flops.matrix, 64 * ffn(1).flops.matrix);
}

TEST(ModelCost, RefusesMorePositionsThanThereAre) {
  const auto cost = model_cost(model("gpt-2-small"), query(Phase::prefill, 1, 1025, {}));
  ASSERT_FALSE(cost);
  EXPECT_EQ(cost.error(),
            "gpt-2-small has 1024 positions, fewer than the 1025 tokens of a sequence");
}

TEST(Roofline, IsTheSlowerOfTwo) {
  MachineShape machine;
  machine.bytes_per_second = 100;
  machine.flop_per_second = {{"bf16", 1000}};
  EXPECT_EQ(roofline(machine, DType::bf16, 5000, 100)->seconds, 5);
  EXPECT_TRUE(roofline(machine, DType::bf16, 5000, 100)->compute_bound);
  EXPECT_EQ(roofline(machine, DType::bf16, 5000, 1000)->seconds, 10);
  EXPECT_FALSE(roofline(machine, DType::bf16, 5000, 1000)->compute_bound);
  EXPECT_FALSE(roofline(machine, DType::f32, 1, 1));
}

}  // namespace
}  // namespace attest
