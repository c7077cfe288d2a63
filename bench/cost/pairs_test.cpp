// SPDX-License-Identifier: Apache-2.0
#include "bench/cost/pairs.hpp"

#include <gtest/gtest.h>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

AttentionProblem problem_of(const char* line) {
  const auto problem = parse_case(line);
  EXPECT_TRUE(problem) << line;
  return *problem;
}

std::vector<AttentionProblem> random_problems(int count) {
  const auto declaration = parse_declaration("dtype=f32 features=all");
  std::vector<AttentionProblem> problems;
  for (std::uint64_t n = 0; problems.size() < static_cast<std::size_t>(count); ++n) {
    AttentionProblem problem = draw(*declaration, 7, "PAIRS", n);
    if (triples(problem) < 500'000) problems.push_back(problem);
  }
  return problems;
}

TEST(Pairs, AreThoseThatTheDefinitionSees) {
  for (const AttentionProblem& problem : random_problems(300)) {
    const AttentionInputs inputs = make_inputs(problem);
    double scored = 0, with_key = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t h = 0; h < problem.num_heads; ++h) {
        const std::vector<std::uint8_t> seen = visible_set(problem, inputs, b, h);
        for (std::int64_t i = 0; i < problem.q_len; ++i) {
          const auto* row = seen.data() + i * problem.kv_len;
          const auto here = static_cast<double>(std::count(row, row + problem.kv_len, 1));
          scored += here;
          with_key += here > 0;
        }
      }
    const Result<PairCounts> counts = count_pairs(problem, {});
    ASSERT_TRUE(counts) << print_case(problem);
    EXPECT_EQ(counts->scored, scored) << print_case(problem);
    EXPECT_EQ(counts->rows_with_key, with_key) << print_case(problem);
    EXPECT_GE(counts->grid, counts->visible);
    EXPECT_GE(counts->visible, counts->scored);
    EXPECT_GE(counts->scored, counts->kept);
  }
}

TEST(Pairs, CountByPositionsAsPairByPair) {
  int compared = 0;
  for (AttentionProblem problem : random_problems(400)) {
    problem.mask = MaskKind::none, problem.bias = BiasKind::none, problem.sink = SinkKind::none;
    problem.blocks = false;
    problem.dropout_p = 0;
    problem.literal = {};
    if (problem.data == Family::list) problem.data = Family::gaussian;
    if (problem_error(problem)) continue;
    ++compared;
    for (const PairTile tile :
         {PairTile{1, 1}, PairTile{1, 64}, PairTile{8, 4}, PairTile{128, 64}}) {
      const PairCounts quick = *count_pairs(problem, tile);
      const PairCounts slow = count_pairs(problem, make_inputs(problem), tile);
      const std::string line = print_case(problem);
      EXPECT_EQ(quick.rows, slow.rows) << line;
      EXPECT_EQ(quick.rows_with_key, slow.rows_with_key) << line;
      EXPECT_EQ(quick.grid, slow.grid) << line;
      EXPECT_EQ(quick.visible, slow.visible) << line;
      EXPECT_EQ(quick.scored, slow.scored) << line;
      EXPECT_EQ(quick.kept, slow.kept) << line;
      EXPECT_EQ(quick.kept_grid, slow.kept_grid) << line;
      EXPECT_EQ(quick.tiles, slow.tiles) << line;
      EXPECT_EQ(quick.row_tiles, slow.row_tiles) << line;
      EXPECT_EQ(quick.keys, slow.keys) << line;
      EXPECT_EQ(quick.keys_of_queries, slow.keys_of_queries) << line;
      EXPECT_EQ(quick.tile_keys, slow.tile_keys) << line;
    }
  }
  EXPECT_GE(compared, 200);
}

TEST(Pairs, OfKnownMasks) {
  const auto visible = [](const char* line) { return count_pairs(problem_of(line), {})->visible; };
  // n (n + 1) / 2 for causal attention, not n^2 / 2.
  EXPECT_EQ(visible("attention.forward lq=8192 lk=8192 base=causal"), 8192.0 * 8193 / 2);
  // A window of w keys to the left: w + 1 for each row but the first w.
  EXPECT_EQ(visible("attention.forward lq=100 lk=100 base=causal window=9,0"), 100 * 10 - 45);
  EXPECT_EQ(visible("attention.forward b=2 hq=3 hkv=3 lq=5 lk=7"), 2 * 3 * 35);
  const PairCounts tiles =
      *count_pairs(problem_of("attention.forward lq=512 lk=512 base=causal"), {128, 64});
  EXPECT_EQ(tiles.tiles, 2 + 4 + 6 + 8);
}

TEST(Pairs, AreRefusedWhereTheyAreTooManyToLookAt) {
  const Result<PairCounts> counts =
      count_pairs(problem_of("attention.forward lq=65536 lk=65536 mask=random"), {});
  ASSERT_FALSE(counts);
  EXPECT_NE(counts.error().find("4.29e+09 pairs"), std::string::npos) << counts.error();
  EXPECT_TRUE(count_pairs(problem_of("attention.forward lq=131072 lk=131072 base=causal"), {}));
}

}  // namespace
}  // namespace attest
