// SPDX-License-Identifier: Apache-2.0
#include "harness/simpler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "attest/case_line.hpp"
#include "harness/complexity.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/legal.hpp"

namespace attest {
namespace {

AttentionProblem problem(const std::string& text) {
  auto parsed = parse_case("attention.forward " + text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error());
  return parsed ? *parsed : AttentionProblem{};
}

const Declaration& everything() {
  static const Declaration all = *parse_declaration("dtype=f64,f32,f16,bf16 features=all");
  return all;
}

bool offers(const AttentionProblem& from, const AttentionProblem& to) {
  const std::vector<AttentionProblem> found = simpler(from);
  return std::find(found.begin(), found.end(), to) != found.end();
}
bool offers(const AttentionProblem& from, const std::string& to) {
  return offers(from, problem(to));
}

AttentionProblem decode_problem(const std::string& text) {
  auto parsed = parse_case("attention.decode " + text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error());
  return parsed ? *parsed : AttentionProblem{};
}

AttentionProblem drawn_decode(std::uint64_t seed, std::uint64_t index) {
  static const Declaration declaration = *parse_declaration(
      "dtype=f64,f32,f16,bf16 features=all cache=contiguous,ring,paged cache_keys=raw,rotated "
      "splits");
  return to_decode(draw(declaration, seed, "decode", index), declaration);
}

TEST(Simpler, OffersOnlyLegalProblemsThatAreSimpler) {
  std::int64_t candidates = 0;
  for (std::uint64_t index = 0; index < 800; ++index) {
    AttentionProblem p = draw(everything(), 21, "shared", index);
    if (index % 3 == 0) p = with_literal_data(p);
    ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
    const Complexity measure = complexity(p);
    for (const AttentionProblem& candidate : simpler(p)) {
      ++candidates;
      ASSERT_EQ(problem_error(candidate), std::nullopt) << print_case(p) << "\n"
                                                        << print_case(candidate);
      ASSERT_LT(complexity(candidate), measure) << print_case(p) << "\n" << print_case(candidate);
    }
  }
  EXPECT_GT(candidates, 30'000);
}

TEST(Simpler, FollowingAnyStepsEnds) {
  for (std::uint64_t index = 0; index < 60; ++index) {
    AttentionProblem p = draw(everything(), 22, "shared", index);
    int steps = 0;
    for (; steps < 5000; ++steps) {
      const std::vector<AttentionProblem> next = simpler(p);
      if (next.empty()) break;
      // The most timid step first makes the longest way.
      p = next[(static_cast<std::size_t>(steps) * 7919 + index) % next.size()];
    }
    EXPECT_LT(steps, 5000) << print_case(p);
    EXPECT_EQ(print_case(p), "attention.forward data=list q=0 k=0 v=0") << index;
  }
}

TEST(Simpler, OffersOnlyLegalDecodeCallsThatAreSimpler) {
  std::int64_t candidates = 0;
  for (std::uint64_t index = 0; index < 500; ++index) {
    AttentionProblem p = drawn_decode(21, index);
    if (index % 3 == 0) p = with_literal_data(p);
    ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
    const Complexity measure = complexity(p);
    for (const AttentionProblem& candidate : simpler(p)) {
      ++candidates;
      ASSERT_EQ(candidate.operation, Operation::decode) << print_case(candidate);
      ASSERT_EQ(problem_error(candidate), std::nullopt) << print_case(p) << "\n"
                                                        << print_case(candidate);
      ASSERT_LT(complexity(candidate), measure) << print_case(p) << "\n" << print_case(candidate);
    }
  }
  EXPECT_GT(candidates, 10'000);
}

TEST(Simpler, FollowingAnyStepsOfADecodeCallEnds) {
  for (std::uint64_t index = 0; index < 60; ++index) {
    AttentionProblem p = drawn_decode(22, index);
    int steps = 0;
    for (; steps < 5000; ++steps) {
      const std::vector<AttentionProblem> next = simpler(p);
      if (next.empty()) break;
      p = next[(static_cast<std::size_t>(steps) * 7919 + index) % next.size()];
    }
    EXPECT_LT(steps, 5000) << print_case(p);
    EXPECT_EQ(print_case(p), "attention.decode data=list q=0 k=0 v=0") << index;
  }
}

TEST(Simpler, CachesBecomePlainerAndSmaller) {
  const auto paged = decode_problem(
      "b=2 lk=30 d=4 rope=half cache=paged cache_rows=40 page_size=16 pages=shared "
      "cache_rotated=1 splits=8");
  const std::string rest = "b=2 lk=30 d=4 rope=half ";
  for (const char* simpler_cache :
       {"cache=paged page_size=16 pages=shared cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=1 pages=shared cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=8 pages=shared cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=15 pages=shared cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=16 cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=16 pages=shuffled cache_rotated=1 splits=8",
        "cache=paged cache_rows=40 page_size=16 pages=shared splits=8",
        "cache=paged cache_rows=40 page_size=16 pages=shared cache_rotated=1",
        "cache=paged cache_rows=40 page_size=16 pages=shared cache_rotated=1 splits=1",
        "cache=paged cache_rows=40 page_size=16 pages=shared cache_rotated=1 splits=7",
        "cache=paged cache_rows=39 page_size=16 pages=shared cache_rotated=1 splits=8",
        "cache_rows=40 cache_rotated=1 splits=8"})
    EXPECT_TRUE(offers(paged, decode_problem(rest + simpler_cache))) << simpler_cache;
  const auto ring = decode_problem("lk=30 cache=ring cache_rows=8 window=5,-1");
  for (const char* smaller :
       {"lk=30 cache=ring cache_rows=8 window=4,-1", "lk=30 cache=ring cache_rows=7 window=5,-1",
        "lk=30 cache=ring window=5,-1", "lk=29 cache=ring cache_rows=8 window=5,-1",
        "lk=30 cache=ring cache_rows=4 window=3,-1"})
    EXPECT_TRUE(offers(ring, decode_problem(smaller))) << smaller;
  // Lengths of a batch, and the sequences of one.
  const auto two = decode_problem("b=2 lq=2 lk=6 seqlens_k=6,4");
  EXPECT_TRUE(offers(two, decode_problem("lq=2 lk=6 seqlens_k=4")));
  EXPECT_TRUE(offers(two, decode_problem("b=2 lq=2 lk=6")));
  EXPECT_TRUE(offers(two, decode_problem("b=2 lq=2 lk=5 seqlens_k=5,3")));
  EXPECT_TRUE(offers(two, decode_problem("b=2 lk=6 seqlens_k=6,4")));
}

TEST(WithLiteralData, KeepsEveryValueOfADecodeCall) {
  int written = 0;
  for (std::uint64_t index = 0; index < 1500; ++index) {
    const AttentionProblem p = drawn_decode(23, index);
    const AttentionProblem listed = with_literal_data(p);
    if (listed == p) continue;
    ++written;
    ASSERT_EQ(problem_error(listed), std::nullopt) << print_case(p);
    const AttentionInputs before = make_inputs(p), after = make_inputs(listed);
    ASSERT_EQ(before.q.values, after.q.values) << print_case(p);
    ASSERT_EQ(before.k.values, after.k.values) << print_case(p);
    ASSERT_EQ(before.v.values, after.v.values) << print_case(p);
  }
  EXPECT_GT(written, 200);
}

TEST(Simpler, TheBoldestStepsComeFirst) {
  const auto p = problem("b=2 hq=4 hkv=2 lq=3 lk=5 d=4 base=causal softcap=2 mask=random seed=9");
  const std::vector<AttentionProblem> found = simpler(p);
  const char* const first[] = {"data=zeros", "seed=9", "lq=3 lk=5 data=zeros", "lq=3 lk=5 seed=9",
                               "b=2 hq=2 lq=3 lk=5 d=4 seed=9"};
  for (std::size_t n = 0; n < std::size(first); ++n)
    EXPECT_EQ(print_case(found[n]), std::string("attention.forward ") + first[n]);
}

TEST(Simpler, OffersCoupledSteps) {
  EXPECT_TRUE(offers(problem("lq=9 lk=9 d=2"), "lq=8 lk=8 d=2"));
  EXPECT_TRUE(offers(problem("lq=9 lk=11 d=2"), "lq=8 lk=10 d=2"));
  EXPECT_TRUE(offers(problem("lq=8 lk=16 d=2"), "lq=4 lk=8 d=2"));
  EXPECT_TRUE(offers(problem("lq=8 lk=8 d=6"), "lq=8 lk=8 d=1"));
  EXPECT_TRUE(offers(problem("hq=6 hkv=3 lk=4"), "hq=4 hkv=2 lk=4"));
  EXPECT_TRUE(offers(problem("hq=9 hkv=3 lk=4"), "hq=6 hkv=3 lk=4"));
  EXPECT_TRUE(
      offers(problem("lq=4 lk=6 d=2 dv=6 data=identity_v"), "lq=4 lk=5 d=2 dv=5 data=identity_v"));
}

TEST(Simpler, PerSequenceListsFollowTheBatch) {
  const auto p = problem(
      "b=3 lq=4 lk=6 base=prefix prefix_len=1,2,3 align=q_offset q_offset=4,5,6 seqlens_k=2,4,6");
  EXPECT_TRUE(
      offers(p, "lq=4 lk=6 base=prefix prefix_len=2 align=q_offset q_offset=5 seqlens_k=4"));
  EXPECT_TRUE(offers(p,
                     "b=2 lq=4 lk=6 base=prefix prefix_len=2,3 align=q_offset q_offset=5,6 "
                     "seqlens_k=4,6"));
  // A length that ended at the capacity does so still, or keeps its distance.
  EXPECT_TRUE(offers(problem("b=2 lk=6 seqlens_k=6,4"), "b=2 lk=5 seqlens_k=5,4"));
  EXPECT_TRUE(offers(problem("b=2 lk=6 seqlens_k=6,4"), "b=2 lk=5 seqlens_k=5,3"));
}

TEST(Simpler, SegmentsGoOneByOneWithTheirRows) {
  const auto p = problem("lq=7 lk=9 cu_seqlens_q=0,2,5,7 cu_seqlens_k=0,3,3,8");
  EXPECT_TRUE(offers(p, "lq=4 lk=9 cu_seqlens_q=0,2,4 cu_seqlens_k=0,3,8"));
  EXPECT_TRUE(offers(p, "lq=7 lk=8 cu_seqlens_q=0,2,5,7 cu_seqlens_k=0,3,3,8"));
  EXPECT_TRUE(offers(p, "lq=6 lk=9 cu_seqlens_q=0,2,4,6 cu_seqlens_k=0,3,3,8"));
}

TEST(Simpler, EverySmallerKindIsOffered) {
  for (const char* kind : {"normal", "neg_inf", "lowest"})
    EXPECT_TRUE(offers(problem("lq=30 lk=30 bias=t5"), std::string("lq=30 lk=30 bias=") + kind));
  for (const char* kind : {"all_true", "all_false", "random", "sparse", "dense"})
    EXPECT_TRUE(
        offers(problem("lq=30 lk=30 mask=empty_rows"), std::string("lq=30 lk=30 mask=") + kind));
  EXPECT_TRUE(offers(problem("lk=3 base=prefix prefix_len=2"), "lk=3 base=causal"));
  EXPECT_TRUE(offers(problem("lk=3 dtype=bf16"), "lk=3"));
  EXPECT_TRUE(offers(problem("lk=3 dtype=bf16"), "lk=3 dtype=f16"));
  EXPECT_TRUE(offers(problem("lk=99 data=needle"), "lk=99 data=integers"));
}

TEST(Simpler, WritesTinyDataOutAndThenSimplifiesIt) {
  const auto p = problem("lq=1 lk=2 d=1 seed=3");
  const AttentionProblem listed = with_literal_data(p);
  EXPECT_EQ(listed.data, Family::list);
  EXPECT_EQ(make_inputs(listed).k.values, make_inputs(p).k.values);
  EXPECT_EQ(make_inputs(listed).v.values, make_inputs(p).v.values);
  const std::vector<AttentionProblem> found = simpler(p);
  EXPECT_NE(std::find(found.begin(), found.end(), listed), found.end());
  const auto values = problem("lq=1 lk=2 d=1 data=list q=2 k=0.7109375,3 v=0,-5");
  EXPECT_TRUE(offers(values, "lq=1 lk=2 d=1 data=list q=0 k=0.7109375,3 v=0,-5"));
  EXPECT_TRUE(offers(values, "lq=1 lk=2 d=1 data=list q=2 k=0.7109375,1 v=0,-5"));
  EXPECT_TRUE(offers(values, "lq=1 lk=2 d=1 data=list q=2 k=0,3 v=0,-5"));
  EXPECT_TRUE(offers(values, "lq=1 lk=2 d=1 data=list q=2 k=0.7109375,3 v=1,1"));
  // Dropping rows keeps the values of the others.
  EXPECT_TRUE(offers(values, "lq=1 lk=1 d=1 data=list q=2 k=0.7109375 v=0"));
}

TEST(WithLiteralData, KeepsEveryValueOfEveryTensor) {
  int written = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const AttentionProblem p = draw(everything(), 23, "shared", index);
    const AttentionProblem listed = with_literal_data(p);
    if (listed == p) continue;
    ++written;
    ASSERT_EQ(problem_error(listed), std::nullopt) << print_case(p);
    const AttentionInputs before = make_inputs(p);
    const AttentionInputs after = make_inputs(listed);
    ASSERT_EQ(before.q.values, after.q.values) << print_case(p);
    ASSERT_EQ(before.k.values, after.k.values) << print_case(p);
    ASSERT_EQ(before.v.values, after.v.values) << print_case(p);
    ASSERT_EQ(before.bias.values, after.bias.values) << print_case(p);
    ASSERT_EQ(before.mask.values, after.mask.values) << print_case(p);
    ASSERT_EQ(before.sink.values, after.sink.values) << print_case(p);
    ASSERT_EQ(before.blocks.values, after.blocks.values) << print_case(p);
    ASSERT_EQ(before.keep.values, after.keep.values) << print_case(p);
    ASSERT_EQ(before.slopes.values, after.slopes.values) << print_case(p);
  }
  EXPECT_GT(written, 300);
  const auto large = problem("lq=8 lk=8 d=8");
  EXPECT_EQ(with_literal_data(large), large);
}

TEST(NumberRank, PrefersWhatIsShortToRead) {
  const double order[] = {0, 1, -1, 2, -2, 3, 100, 1.5, 1.25, 0.7109375, 0.1};
  for (std::size_t n = 1; n < std::size(order); ++n)
    EXPECT_LT(number_rank(order[n - 1]), number_rank(order[n])) << order[n];
  EXPECT_LT(number_rank(0.1), number_rank(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_LT(number_rank(0.0), number_rank(-0.0));
}

}  // namespace
}  // namespace attest
