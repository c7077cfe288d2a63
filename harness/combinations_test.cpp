// SPDX-License-Identifier: Apache-2.0
#include "harness/combinations.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/generate.hpp"

namespace attest {
namespace {

std::vector<FeatureSet> drawn(const Declaration& declaration, std::uint64_t count) {
  std::vector<FeatureSet> sets;
  for (std::uint64_t index = 0; index < count; ++index) {
    const AttentionProblem p = draw(declaration, 1, "shared", index);
    std::uint64_t features = 0;
    for (const Feature feature : features_of(p))
      features |= std::uint64_t{1} << static_cast<unsigned>(feature);
    sets.push_back(feature_set(features, p.dtype));
  }
  return sets;
}

bool misses(const PairCoverage& coverage, const std::string& pair) {
  return std::find(coverage.missing.begin(), coverage.missing.end(), pair) !=
         coverage.missing.end();
}

TEST(Pairs, AreThoseThatCanBeAndNoOthers) {
  // Four values of two features, and two dtypes: gqa and causal meet in 4 ways, each meets 2 dtypes
  // when in use, or not: 4 + 2 * 2 * 2.
  const Declaration two = *parse_declaration("dtype=f32,bf16 base=full,causal gqa");
  const PairCoverage none = pair_coverage(two, {});
  EXPECT_EQ(none.possible, 12);
  EXPECT_EQ(none.covered, 0);
  EXPECT_EQ(none.missing.size(), 12u);
  EXPECT_TRUE(misses(none, "gqa + causal"));
  EXPECT_TRUE(misses(none, "no gqa + causal"));
  EXPECT_TRUE(misses(none, "no causal + bf16"));
  // gqa and causal with f32, gqa and causal with bf16.
  EXPECT_EQ(none.triples_possible, 2);
  EXPECT_NE(std::find(none.excluded.begin(), none.excluded.end(), "softcap"), none.excluded.end());
  EXPECT_NE(std::find(none.excluded.begin(), none.excluded.end(), "f16"), none.excluded.end());
  EXPECT_EQ(std::find(none.excluded.begin(), none.excluded.end(), "gqa"), none.excluded.end());

  // One problem with both, in f32: gqa + causal, gqa + f32, causal + f32, and the triple.
  const FeatureSet both = feature_set(
      (1u << static_cast<unsigned>(Feature::gqa)) | (1u << static_cast<unsigned>(Feature::causal)),
      DType::f32);
  const PairCoverage one = pair_coverage(two, {both});
  EXPECT_EQ(one.covered, 3);
  EXPECT_EQ(one.triples_covered, 1);
  EXPECT_FALSE(misses(one, "gqa + causal"));
}

TEST(Pairs, ThatExcludeEachOtherAreNotPossible) {
  const auto possible = [](const char* declaration) {
    return pair_coverage(*parse_declaration(declaration), {}).possible;
  };
  // Packed with lengths: both in use is no problem; the other three ways are, and the dtype adds
  // two values each.
  EXPECT_EQ(possible("dtype=f32 packed seqlens_k"), 3 + 2 * 2);
  // Global tokens need a window.
  EXPECT_EQ(possible("dtype=f32 window=left global_tokens"), 3 + 2 * 2);
  EXPECT_EQ(possible("dtype=f32 layout=bhld,blhd,strided"), 3 + 2 * 2);
  // Without the plain layout it is one or the other.
  EXPECT_EQ(possible("dtype=f32 layout=blhd,strided"), 2 + 2 * 2);
  // A kernel that serves causal problems alone has no problem without it.
  EXPECT_EQ(possible("dtype=f32 base=causal gqa"), 2 + 1 + 2);
}

TEST(Pairs, OfEverythingAllMeetInAQuickRun) {
  const Declaration all = *parse_declaration("dtype=f64,f32,f16,bf16 features=all");
  const PairCoverage coverage = pair_coverage(all, drawn(all, 6000));
  EXPECT_EQ(coverage.covered, coverage.possible)
      << (coverage.missing.empty() ? "" : coverage.missing.front());
  EXPECT_GT(coverage.possible, 3300);
  EXPECT_GT(coverage.triples_possible, 1000);
  EXPECT_GT(coverage.triples_covered, coverage.triples_possible * 98 / 100);
  EXPECT_TRUE(coverage.excluded.empty());
}

TEST(Combinations, ComeByTurnsAndEachOnceInARound) {
  const Declaration two = *parse_declaration("dtype=f32,bf16 base=full,causal gqa");
  std::vector<std::vector<Feature>> pairs;
  int dtypes = 0;
  for (std::uint64_t number = 0; number < 10; number += 2) {
    const Combination combination = combination_at(two, number);
    EXPECT_EQ(combination.features.size() + combination.dtype.has_value(), 2u);
    dtypes += combination.dtype.has_value();
    if (!combination.dtype) pairs.push_back(combination.features);
  }
  // gqa + causal, and each of the two with each of two dtypes.
  EXPECT_EQ(dtypes, 4);
  EXPECT_EQ(pairs, (std::vector<std::vector<Feature>>{{Feature::gqa, Feature::causal}}));
  const Combination triple = combination_at(two, 1);
  EXPECT_EQ(triple.features.size(), 2u);
  EXPECT_TRUE(triple.dtype);
}

TEST(Combinations, AreTurnedOnOrRefused) {
  const Declaration all = *parse_declaration("dtype=f64,f32,f16,bf16 features=all");
  Dice dice(1, "test", 0);
  const AttentionProblem plain = draw(all, 1, "shared", 0);
  const auto met =
      with_combination(dice, all, plain, {{Feature::sink, Feature::packed}, DType::f16});
  ASSERT_TRUE(met);
  EXPECT_EQ(met->dtype, DType::f16);
  EXPECT_NE(met->sink, SinkKind::none);
  EXPECT_FALSE(met->cu_seqlens_q.empty());
  EXPECT_EQ(not_declared(all, *met), std::nullopt);
  EXPECT_FALSE(
      with_combination(dice, all, plain, {{Feature::alibi_signed, Feature::alibi_absolute}, {}}));
}

}  // namespace
}  // namespace attest
