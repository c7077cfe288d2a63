// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/dice.hpp"
#include "harness/legal.hpp"

namespace attest {
namespace {

Declaration declared(const std::string& text) {
  auto parsed = parse_declaration(text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error());
  return parsed ? *parsed : Declaration{};
}

const Declaration& everything() {
  static const Declaration all = declared("dtype=f64,f32,f16,bf16 features=all");
  return all;
}

const char* const kDeclarations[] = {
    "dtype=f32",
    "dtype=bf16 head_dim=64,96,128 base=causal lse",
    "dtype=f32,f64 head_dim=8..256%8 base=full,causal align=bottom_right gqa window lse softcap",
    "dtype=f16 base=causal align=top_left max_q_len=64 max_kv_len=64 alibi=signed",
    "dtype=f16,bf16 head_dim=2..128%2 v_head_dim=1..64 base=full,causal,prefix align=q_offset "
    "seqlens_k left_pad_k rope=half empty_dims lse layout=blhd",
    "dtype=f32 packed base=full,causal align=top_left,bottom_right mask bias bias_neg_inf "
    "layout=any empty_row=nan empty_lse=zero lse",
    "dtype=f64 head_dim=7 v_head_dim=5 sink dropout blocks scale scale_nonpositive features=all",
};

TEST(Draw, IsAddressed) {
  const Declaration& all = everything();
  for (std::uint64_t index = 0; index < 50; ++index) {
    const AttentionProblem first = draw(all, 3, "shared", index);
    draw(all, 3, "shared", index + 1000);
    EXPECT_EQ(draw(all, 3, "shared", index), first);
    EXPECT_NE(draw(all, 4, "shared", index), first);
    EXPECT_NE(draw(all, 3, "other", index), first);
    EXPECT_NE(draw(all, 3, "shared", index + 1), first);
  }
}

TEST(Draw, IsLegalAndDeclaredForEveryDeclaration) {
  for (const char* text : kDeclarations) {
    const Declaration declaration = declared(text);
    for (std::uint64_t index = 0; index < 1500; ++index) {
      const AttentionProblem p = draw(declaration, 1, "shared", index);
      ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
      ASSERT_EQ(not_declared(declaration, p), std::nullopt) << print_case(p);
      ASSERT_EQ(p.empty_output, declaration.empty_output);
      ASSERT_EQ(p.empty_lse, declaration.empty_lse);
      const auto again = parse_case(print_case(p));
      ASSERT_TRUE(again && *again == p) << print_case(p);
    }
  }
}

TEST(Draw, ReachesEverythingDeclared) {
  std::set<Feature> features;
  std::set<Family> families, v_families;
  std::set<std::pair<Family, DType>> families_by_type;
  std::set<DType> dtypes;
  std::set<BiasKind> biases;
  std::set<MaskKind> masks;
  std::set<SinkKind> sinks;
  std::set<SlopesKind> slopes;
  std::set<std::pair<Feature, Feature>> pairs;
  int shorter = 0, equal = 0, longer = 0, empty_segment = 0, no_length = 0, full_length = 0;
  constexpr int kDraws = 5000;
  for (std::uint64_t index = 0; index < kDraws; ++index) {
    const AttentionProblem p = draw(everything(), 2, "shared", index);
    const auto used = features_of(p);
    features.insert(used.begin(), used.end());
    for (const Feature a : used)
      for (const Feature b : used)
        if (a < b) pairs.insert({a, b});
    families.insert(p.data);
    families_by_type.insert({p.data, p.dtype});
    if (p.v_data) v_families.insert(*p.v_data);
    dtypes.insert(p.dtype);
    biases.insert(p.bias);
    masks.insert(p.mask);
    sinks.insert(p.sink);
    slopes.insert(p.slopes);
    ++(p.q_len < p.kv_len ? shorter : p.q_len == p.kv_len ? equal : longer);
    for (std::size_t s = 1; s < p.cu_seqlens_q.size(); ++s)
      empty_segment += p.cu_seqlens_q[s] == p.cu_seqlens_q[s - 1];
    for (const std::int64_t length : p.seqlens_k) {
      no_length += length == 0;
      full_length += length == p.kv_len;
    }
  }
  EXPECT_EQ(features.size(), static_cast<std::size_t>(kNumFeatures));
  EXPECT_EQ(families.size(), static_cast<std::size_t>(Family::list));
  EXPECT_EQ(families_by_type.size(), 4 * static_cast<std::size_t>(Family::list));
  // Those that shape scores are the normal numbers in v.
  EXPECT_EQ(v_families.size(), static_cast<std::size_t>(Family::list) - 9);
  EXPECT_EQ(dtypes.size(), 4u);
  EXPECT_EQ(biases.size(), static_cast<std::size_t>(BiasKind::list));
  EXPECT_EQ(masks.size(), static_cast<std::size_t>(MaskKind::list));
  EXPECT_EQ(sinks.size(), static_cast<std::size_t>(SinkKind::list));
  EXPECT_EQ(slopes.size(), static_cast<std::size_t>(SlopesKind::list));
  for (const int count : {shorter, equal, longer}) EXPECT_GT(count, kDraws / 8);
  for (const int count : {empty_segment, no_length, full_length}) EXPECT_GT(count, 50);
  // 40 features make 780 pairs; some exclude each other (layouts, kinds of ALiBi, alignments; what
  // else does is in combinations_test.cpp).
  EXPECT_GT(pairs.size(), 730u);
}

TEST(Draw, MostCasesAreSmall) {
  std::vector<double> pairs, triples;
  double sum = 0;
  constexpr int kDraws = 5000;
  for (std::uint64_t index = 0; index < kDraws; ++index) {
    const AttentionProblem p = draw(everything(), 5, "shared", index);
    EXPECT_LE(p.batch, 3);
    EXPECT_LE(p.num_heads, 9);
    EXPECT_LE(p.kv_len, 4096);
    pairs.push_back(static_cast<double>(p.batch * p.num_heads * p.q_len * p.kv_len));
    triples.push_back(pairs.back() * static_cast<double>(std::max(p.head_dim, p.v_head_dim)));
    sum += triples.back();
  }
  std::sort(pairs.begin(), pairs.end());
  std::sort(triples.begin(), triples.end());
  EXPECT_GT(pairs[kDraws / 2], 20);
  EXPECT_LT(pairs[kDraws / 2], 100);
  EXPECT_LT(triples[kDraws / 2], 1500);
  EXPECT_LT(sum / kDraws, 150'000);
  EXPECT_LT(triples.back(), 2e7);  // a combination that is turned on may double the heads
  EXPECT_GT(triples[kDraws * 97 / 100], 50'000);  // the large ones
}

TEST(Draw, SparseHeadDimsAreAllSeen) {
  const Declaration declaration = declared("dtype=f32 head_dim=64,96,256");
  std::map<std::int64_t, int> seen;
  for (std::uint64_t index = 0; index < 2000; ++index)
    ++seen[draw(declaration, 1, "shared", index).head_dim];
  EXPECT_EQ(seen.size(), 3u);
  for (const auto& [dim, count] : seen) EXPECT_GT(count, 20) << dim;
}

/// Any bits in any field.
AttentionProblem hostile(std::uint64_t seed) {
  Dice dice(seed, "hostile", 0);
  AttentionProblem p;
  const auto integer = [&]() -> std::int64_t {
    switch (dice.below(6)) {
      case 0: return static_cast<std::int64_t>(dice.bits());
      case 1: return -dice.below(4);
      default: return dice.below(7);
    }
  };
  const auto number = [&] {
    switch (dice.below(6)) {
      case 0: return std::bit_cast<double>(dice.bits());
      case 1: return -1.0;
      default: return static_cast<double>(dice.below(3));
    }
  };
  const auto list = [&] {
    std::vector<std::int64_t> values(static_cast<std::size_t>(dice.one_in(3) ? dice.below(5) : 0));
    for (auto& value : values) value = integer();
    return values;
  };
  const auto numbers = [&] {
    std::vector<double> values(static_cast<std::size_t>(dice.one_in(3) ? dice.below(9) : 0));
    for (auto& value : values) value = number();
    return values;
  };
  const auto byte = [&] { return dice.below(dice.one_in(4) ? 256 : 6); };
  const auto axes = [&] {
    return Axes{dice.one_in(2), dice.one_in(2), dice.one_in(2), dice.one_in(2)};
  };
  p.dtype = static_cast<DType>(byte());
  for (auto* field : {&p.batch, &p.num_heads, &p.num_kv_heads, &p.q_len, &p.kv_len, &p.head_dim,
                      &p.v_head_dim, &p.window_left, &p.window_right, &p.global_tokens, &p.block_q,
                      &p.block_k, &p.rope_dim, &p.t5_buckets, &p.t5_max_distance})
    if (!dice.one_in(3)) *field = integer();
  if (dice.one_in(3)) p.scale = number();
  for (auto* field : {&p.softcap, &p.dropout_p, &p.rope_base, &p.rope_scale, &p.rope_ntk})
    if (dice.one_in(2)) *field = number();
  p.base = static_cast<Base>(byte());
  p.align = static_cast<Align>(byte());
  for (auto* field : {&p.q_offset, &p.prefix_len, &p.seqlens_q, &p.seqlens_k, &p.left_pad_q,
                      &p.left_pad_k, &p.cu_seqlens_q, &p.cu_seqlens_k})
    *field = list();
  p.mask = static_cast<MaskKind>(byte());
  p.bias = static_cast<BiasKind>(byte());
  for (auto* field : {&p.mask_axes, &p.bias_axes, &p.block_axes}) *field = axes();
  p.t5_bidirectional = dice.one_in(2);
  p.blocks = dice.one_in(2);
  p.alibi = static_cast<AlibiKind>(byte());
  p.alibi_inside_softcap = dice.one_in(2);
  p.slopes = static_cast<SlopesKind>(byte());
  p.sink = static_cast<SinkKind>(byte());
  p.rope = static_cast<RopePairing>(byte());
  p.empty_output = static_cast<EmptyOutput>(byte());
  p.empty_lse = static_cast<EmptyLse>(byte());
  p.layout = static_cast<Layout>(byte());
  p.data = static_cast<Family>(dice.below(28));
  if (dice.one_in(2)) p.v_data = static_cast<Family>(dice.below(28));
  p.seed = dice.bits();
  for (auto* field : {&p.literal.q, &p.literal.k, &p.literal.v, &p.literal.bias, &p.literal.sink,
                      &p.literal.slopes, &p.literal.mask, &p.literal.blocks, &p.literal.keep})
    *field = numbers();
  return p;
}

TEST(Mend, MakesAnythingLegalAndLeavesLegalAlone) {
  int illegal = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    const AttentionProblem p = hostile(seed);
    illegal += problem_error(p).has_value();
    const AttentionProblem mended = mend(p);
    ASSERT_EQ(problem_error(mended), std::nullopt) << seed;
    const bool has_nan = mended != mended;  // NaN among literal values
    ASSERT_TRUE(has_nan || mend(mended) == mended) << print_case(mended);
  }
  EXPECT_GT(illegal, 19'000);
  for (std::uint64_t index = 0; index < 3000; ++index) {
    const AttentionProblem p = draw(everything(), 8, "shared", index);
    ASSERT_TRUE(mend(p) == p) << print_case(p);
  }
}

TEST(MakeLegal, IsTotalAndIdempotent) {
  for (const char* text : kDeclarations) {
    const Declaration declaration = declared(text);
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      const AttentionProblem legal = make_legal(hostile(seed), declaration);
      ASSERT_EQ(problem_error(legal), std::nullopt) << seed;
      ASSERT_EQ(not_declared(declaration, legal), std::nullopt) << print_case(legal);
      const AttentionProblem drawn = make_legal(draw(everything(), 6, "shared", seed), declaration);
      ASSERT_EQ(not_declared(declaration, drawn), std::nullopt) << print_case(drawn);
      ASSERT_TRUE(make_legal(drawn, declaration) == drawn) << print_case(drawn);
    }
  }
}

TEST(MakeLegal, TakesAwayOnlyWhatIsNotDeclared) {
  const Declaration declaration =
      declared("dtype=f32 base=full,causal align=top_left gqa lse mask head_dim=8,16");
  const auto p = *parse_case(
      "attention.forward dtype=bf16 b=2 hq=4 hkv=2 lq=3 lk=5 d=11 base=causal softcap=2 "
      "mask=random window=2,0 seed=9");
  const auto expected = *parse_case(
      "attention.forward b=2 hq=4 hkv=2 lq=3 lk=5 d=8 base=causal align=top_left mask=random "
      "seed=9");
  AttentionProblem legal = make_legal(p, declaration);
  EXPECT_TRUE(legal.head_dim == 8 || legal.head_dim == 16);
  legal.head_dim = legal.v_head_dim = 8;
  EXPECT_EQ(print_case(legal), print_case(expected));
}

// A causal kernel that declares no alignment serves square problems, and must be tested there.
TEST(MakeLegal, WithoutAnAlignmentCausalProblemsBecomeSquare) {
  const Declaration declaration = declared("dtype=f32 base=full,causal");
  const auto p = *parse_case("attention.forward lq=3 lk=5 base=causal");
  const AttentionProblem legal = make_legal(p, declaration);
  EXPECT_EQ(legal.base, Base::causal);
  EXPECT_EQ(legal.q_len, 3);
  EXPECT_EQ(legal.kv_len, 3);
}

}  // namespace
}  // namespace attest
