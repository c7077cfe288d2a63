// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"

#include <fmt/format.h>
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

/// Takes every cache there is.
const Declaration& decoder() {
  static const Declaration all = declared(
      "dtype=f64,f32,f16,bf16 features=all cache=contiguous,ring,paged cache_keys=raw,rotated "
      "splits switch=64,1000");
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
    "dtype=f32 cache=contiguous",
    "dtype=f16 base=causal forward=none cache=paged page_size=16..64%16 lse gqa layout=blhd",
    "dtype=f32,bf16 window=left forward=none cache=ring rope=half cache_keys=rotated max_kv_len=64",
    "dtype=f32 features=all backward=all cache=contiguous,ring,paged cache_keys=raw,rotated splits "
    "switch=32,100",
    "dtype=f32 base=causal seqlens_q cache=ring,paged page_size=3 max_q_len=1 v_head_dim=any",
};

/// Whether a kernel with this declaration decodes.
bool decodes(const Declaration& declaration) { return declaration.cache.served(); }

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
  p.operation = static_cast<Operation>(dice.below(dice.one_in(4) ? 256 : 3));
  p.cache = static_cast<CacheKind>(dice.below(dice.one_in(4) ? 256 : 3));
  p.pages = static_cast<PageOrder>(dice.below(dice.one_in(4) ? 256 : 3));
  for (auto* field : {&p.cache_rows, &p.page_size, &p.num_splits})
    if (!dice.one_in(3)) *field = integer();
  p.cache_rotated = dice.one_in(2);
  for (bool& left_out : p.no_gradient) left_out = dice.one_in(4);
  p.d_lse = dice.one_in(2);
  p.d_o_data = static_cast<Family>(dice.below(28));
  if (dice.one_in(2)) p.d_o_layout = static_cast<Layout>(byte());
  p.data = static_cast<Family>(dice.below(28));
  if (dice.one_in(2)) p.v_data = static_cast<Family>(dice.below(28));
  p.seed = dice.bits();
  for (auto* field : {&p.literal.q, &p.literal.k, &p.literal.v, &p.literal.bias, &p.literal.sink,
                      &p.literal.slopes, &p.literal.mask, &p.literal.blocks, &p.literal.keep,
                      &p.literal.d_o, &p.literal.d_lse})
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

/// Legal but for the edit; what mends it, and nothing else.
struct Mended {
  const char* keys;
  void (*spoil)(AttentionProblem&);
  const char* mended;
};

TEST(Mend, ChangesOfADecodeCallWhatIsWrong) {
  using P = AttentionProblem;
  const Mended kTable[] = {
      {"lq=3 lk=4 seed=9", [](P& p) { p.kv_len = 2; }, "lq=2 lk=2 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.align = Align::top_left; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.dropout_p = 0.5; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.left_pad_k = {1}; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.layout = Layout::far; }, "lk=4 layout=blhd seed=9"},
      {"lk=4 cache_rows=4 seed=9", [](P& p) { p.cache_rows = 3; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.page_size = 3; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.pages = PageOrder::shared; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.cache_rotated = true; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.num_splits = -3; }, "lk=4 seed=9"},
      {"lk=4 seed=9", [](P& p) { p.d_lse = true; }, "lk=4 seed=9"},
      {"lk=4 cache=paged page_size=3 pages=shared seed=9", [](P& p) { p.page_size = 0; },
       "lk=4 cache=paged page_size=1 pages=shared seed=9"},
      {"lk=9 window=2,-1 cache=ring cache_rows=4 seed=9", [](P& p) { p.window_left = 5; },
       "lk=9 window=3,-1 cache=ring cache_rows=4 seed=9"},
      {"lk=9 lq=4 window=2,-1 cache=ring cache_rows=6 seed=9", [](P& p) { p.cache_rows = 3; },
       "lk=9 lq=4 window=2,-1 cache=ring seed=9"},
      {"lk=9 window=2,-1 cache=ring cache_rows=4 seed=9", [](P& p) { p.global_tokens = 1; },
       "lk=9 window=2,-1 cache=ring cache_rows=4 seed=9"},
      {"b=2 lq=3 lk=9 seqlens_k=9,5 seed=9",
       [](P& p) {
         p.seqlens_k = {9, 2};
       },
       "b=2 lq=3 lk=9 seqlens_k=9,2 seqlens_q=3,2 seed=9"},
      {"b=2 lk=4 cache=paged page_size=2 pages=shuffled data=list q=1,1 k=1,2,3,4,1,5,7,8 "
       "v=1,2,3,4,5,6,7,8",
       [](P& p) { p.pages = PageOrder::shared; },
       "b=2 lk=4 cache=paged page_size=2 pages=shared data=list q=1,1 k=1,2,3,4,1,2,7,8 "
       "v=1,2,3,4,1,2,7,8"},
  };
  for (const auto& [keys, spoil, mended] : kTable) {
    const auto before = parse_case(std::string("attention.decode ") + keys);
    const auto after = parse_case(std::string("attention.decode ") + mended);
    ASSERT_TRUE(before && after) << keys << "\n" << mended;
    AttentionProblem p = *before;
    spoil(p);
    ASSERT_TRUE(problem_error(p)) << "of " << keys;
    EXPECT_EQ(print_case(mend(p)), print_case(*after)) << keys;
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

TEST(MakeLegal, IsIdempotentOnDecodeCalls) {
  for (const char* text : kDeclarations) {
    const Declaration declaration = declared(text);
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      // Of another kernel, which decodes everything.
      const AttentionProblem drawn = to_decode(draw(decoder(), 6, "decode", seed), decoder());
      const AttentionProblem legal = make_legal(drawn, declaration);
      ASSERT_EQ(problem_error(legal), std::nullopt) << print_case(drawn);
      ASSERT_EQ(not_declared(declaration, legal), std::nullopt) << text << "\n"
                                                                << print_case(drawn) << "\n"
                                                                << print_case(legal);
      ASSERT_EQ(legal.operation, decodes(declaration) ? Operation::decode : Operation::forward)
          << text << "\n"
          << print_case(drawn);
      ASSERT_TRUE(make_legal(legal, declaration) == legal) << text << "\n" << print_case(legal);
    }
  }
}

TEST(ToDecode, ManyRowsMakeNoSquare) {
  Declaration declaration = decoder();
  declaration.switch_lengths.clear();
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    AttentionProblem rows;
    rows.seed = seed;
    rows.q_len = 65537;
    rows.kv_len = 2;
    const AttentionProblem p = to_decode(rows, declaration);
    EXPECT_LE(p.q_len * p.kv_len, std::int64_t{1} << 22) << print_case(p);
    EXPECT_GE(p.q_len, 1) << print_case(p);
    EXPECT_GE(p.kv_len, 1000) << "the many rows are in the cache: " << print_case(p);
  }
}

// What can be decoded stays what it is.
TEST(MakeLegal, FitsDecodeCallsToTheDeclaration) {
  const struct {
    const char *declaration, *keys, *fitted;
  } kTable[] = {
      {"dtype=f32 cache=paged page_size=16..64%16", "lk=9 cache=contiguous",
       "lk=9 cache=paged page_size=16"},
      {"dtype=f32 cache=paged page_size=4,32", "lk=9 cache=paged page_size=30 pages=shared",
       "lk=9 cache=paged page_size=32 pages=shared"},
      {"dtype=f32 cache=contiguous", "lk=9 cache=paged page_size=4 pages=shuffled splits=3",
       "lk=9"},
      {"dtype=f32 cache=ring window=left", "lk=9 cache=ring cache_rows=4 window=2,-1",
       "lk=9 window=2,-1 cache=ring cache_rows=4"},
      // Without a window a ring holds all.
      {"dtype=f32 cache=ring", "lk=9 cache=ring cache_rows=4 window=2,-1", "lk=9 cache=ring"},
      {"dtype=f32 cache=contiguous rope=half cache_keys=rotated", "lk=9 d=2 rope=half",
       "lk=9 d=2 rope=half cache_rotated=1"},
      {"dtype=f32 cache=contiguous rope=half", "lk=9 d=2 rope=half cache_rotated=1",
       "lk=9 d=2 rope=half"},
      {"dtype=f32 cache=contiguous", "lk=9 d=2 rope=half cache_rotated=1", "lk=9 d=2"},
      {"dtype=f32 cache=contiguous", "b=2 lq=2 lk=9 seqlens_k=9,4", "b=2 lq=2 lk=9 seqlens_k=9,4"},
      // New rows differ in number only where that is declared.
      {"dtype=f32 cache=contiguous seqlens_q", "b=2 lq=2 lk=9 seqlens_q=2,1",
       "b=2 lq=2 lk=9 seqlens_q=2,1"},
      {"dtype=f32 cache=contiguous", "b=2 lq=2 lk=9 seqlens_q=2,1", "b=2 lq=2 lk=9"},
  };
  for (const auto& [declaration, keys, fitted] : kTable) {
    const auto problem = parse_case(std::string("attention.decode lse=0 ") + keys);
    const auto expected = parse_case(std::string("attention.decode lse=0 ") + fitted);
    ASSERT_TRUE(problem && expected) << keys;
    EXPECT_EQ(print_case(make_legal(*problem, declared(declaration))), print_case(*expected))
        << declaration;
  }
}

TEST(ToDecode, IsLegalDeclaredAndAFunctionOfItsProblem) {
  for (const char* text : kDeclarations) {
    const Declaration declaration = declared(text);
    for (std::uint64_t index = 0; index < 1500; ++index) {
      const AttentionProblem drawn = draw(declaration, 1, "decode", index);
      const AttentionProblem p = to_decode(drawn, declaration);
      ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
      ASSERT_EQ(not_declared(declaration, p), std::nullopt) << text << "\n" << print_case(p);
      ASSERT_EQ(p.operation, decodes(declaration) ? Operation::decode : Operation::forward)
          << print_case(p);
      const auto again = parse_case(print_case(p));
      ASSERT_TRUE(again && *again == p) << print_case(p);
      ASSERT_TRUE(to_decode(drawn, declaration) == p) << print_case(p);
      ASSERT_TRUE(make_legal(p, declaration) == p) << text << "\n" << print_case(p);
    }
  }
}

TEST(ToDecode, ReachesEverythingThatCachesCanBe) {
  std::map<std::string, int> seen;
  constexpr int kDraws = 3000;
  for (std::uint64_t index = 0; index < kDraws; ++index) {
    const AttentionProblem p = to_decode(draw(decoder(), 2, "decode", index), decoder());
    const auto count = [&seen](bool yes, const std::string& what) { seen[what] += yes; };
    const std::string kind(enum_name(p.cache));
    count(true, kind);
    if (p.cache == CacheKind::paged) count(true, std::string(enum_name(p.pages)));
    count(p.batch > 1 && shared_pages(p) > 0, "a shared page");
    const bool ring = p.cache == CacheKind::ring && p.cache_rows > 0;
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const std::int64_t cached = cached_rows(p, b), all = cached + new_rows(p, b);
      longest = std::max(longest, all);
      count(cached == 0, "an empty cache");
      count(new_rows(p, b) == 0, "no new row");
      count(p.page_size > 1 && cached > 0 && cached % p.page_size == 0, "new rows begin a page");
      count(p.page_size > 1 && all > 0 && all % p.page_size == 0, "new rows fill a page");
      count(p.page_size > 1 && cached / p.page_size < (all - 1) / p.page_size && all > 0,
            "new rows on several pages");
      count(ring && all == p.cache_rows, "a ring exactly full");
      count(ring && cached <= p.cache_rows && all > p.cache_rows, "the first turn of a ring");
      count(ring && cached > 2 * p.cache_rows, "a ring that has turned twice");
      count(ring && all > p.cache_rows && p.window_left + new_rows(p, b) == p.cache_rows,
            "a ring that holds just what is seen");
    }
    const auto differ = [](const std::vector<std::int64_t>& list) {
      return !list.empty() && *std::min_element(list.begin(), list.end()) !=
                                  *std::max_element(list.begin(), list.end());
    };
    count(differ(p.seqlens_k), "unequal lengths");
    count(differ(p.seqlens_q), "unequal new rows");
    count(p.q_len == 1, "one new row");
    count(p.q_len > 1 && p.q_len == p.kv_len, "the whole prompt");
    count(p.q_len > 1 && p.q_len < p.kv_len, "a chunk");
    count(p.cache != CacheKind::ring && cache_capacity(p) > longest, "room behind");
    count(p.cache != CacheKind::ring && cache_capacity(p) == longest, "no room behind");
    count(p.rope != RopePairing::none && p.cache_rotated, "rotated keys");
    count(p.rope != RopePairing::none && !p.cache_rotated, "raw keys");
    count(p.num_splits == 0, "splits as the kernel likes");
    count(p.num_splits == 1, "one split");
    count(p.num_splits > 1 && p.num_splits < p.kv_len, "splits");
    count(p.num_splits > p.kv_len, "more splits than keys");
    count(p.base == Base::causal, "causal");
    count(p.base == Base::full, "full");
    count(p.window_left >= 0, "a window");
    for (const std::int64_t edge : decoder().switch_lengths)
      for (std::int64_t off = -1; off <= 1; ++off)
        count(p.kv_len == edge + off, fmt::format("{} rows", edge + off));
  }
  for (const auto& [what, count] : seen) EXPECT_GT(count, 15) << what;
  for (const char* kind : {"contiguous", "ring", "paged"})
    EXPECT_GT(seen[kind], kDraws / 5) << kind;
  EXPECT_GT(seen["one new row"], kDraws / 3);
}

TEST(ToDecode, MostCasesAreSmall) {
  std::vector<double> sizes;
  double sum = 0;
  constexpr int kDraws = 3000;
  for (std::uint64_t index = 0; index < kDraws; ++index) {
    const AttentionProblem p = to_decode(draw(decoder(), 5, "decode", index), decoder());
    sizes.push_back(static_cast<double>(triples(p)));
    sum += sizes.back();
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_LT(sizes[kDraws / 2], 1500);
  EXPECT_LT(sum / kDraws, 150'000);
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
