// SPDX-License-Identifier: Apache-2.0
#include "reference/visible.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "attest/case_line.hpp"
#include "reference/definition.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::Random;
using testing_support::random_inputs;
using testing_support::random_masked_problem;

AttentionProblem sized(std::int64_t q_len, std::int64_t kv_len) {
  AttentionProblem p;
  p.q_len = q_len;
  p.kv_len = kv_len;
  return p;
}

/// The visible set as a drawing, a line a query: 'x' visible, '.' not.
std::string picture(const AttentionProblem& p, const AttentionInputs& inputs = {},
                    std::int64_t b = 0, std::int64_t h = 0) {
  const auto set = visible_set(p, inputs, b, h);
  std::string text;
  for (std::size_t n = 0; n < set.size(); ++n) {
    if (n > 0 && n % static_cast<std::size_t>(p.kv_len) == 0) text += '\n';
    text += set[n] ? 'x' : '.';
  }
  return text;
}

TEST(Visible, FullShowsEverything) { EXPECT_EQ(picture(sized(2, 3)), "xxx\nxxx"); }

TEST(Visible, CausalAlignsBottomRightByDefault) {
  AttentionProblem p = sized(2, 4);
  p.base = Base::causal;
  EXPECT_EQ(picture(p), "xxx.\nxxxx");
  p.align = Align::top_left;
  EXPECT_EQ(picture(p), "x...\nxx..");
  p.align = Align::q_offset;
  p.q_offset = {1};
  EXPECT_EQ(picture(p), "xx..\nxxx.");
  p.q_offset = {-1};
  EXPECT_EQ(picture(p), "....\nx...");
}

TEST(Visible, MoreQueriesThanKeysLeaveEmptyRowsAtTheTop) {
  AttentionProblem p = sized(4, 2);
  p.base = Base::causal;
  EXPECT_EQ(picture(p), "..\n..\nx.\nxx");
  EXPECT_EQ(query_positions(p, 0), (std::vector<std::int64_t>{-2, -1, 0, 1}));
}

TEST(Visible, PrefixSeesItsKeysFromEverywhere) {
  AttentionProblem p = sized(4, 4);
  p.base = Base::prefix;
  p.prefix_len = {2};
  EXPECT_EQ(picture(p), "xx..\nxx..\nxxx.\nxxxx");
}

TEST(Visible, WindowIsInclusiveOnBothSides) {
  AttentionProblem p = sized(5, 5);
  p.window_left = 1;
  p.window_right = 2;
  EXPECT_EQ(picture(p), "xxx..\nxxxx.\n.xxxx\n..xxx\n...xx");
}

TEST(Visible, GlobalTokensWidenTheWindowButNotTheBase) {
  AttentionProblem p = sized(5, 5);
  p.window_left = p.window_right = 1;
  p.global_tokens = 1;
  EXPECT_EQ(picture(p), "xxxxx\nxxx..\nxxxx.\nx.xxx\nx..xx");
  p.base = Base::causal;
  EXPECT_EQ(picture(p), "x....\nxx...\nxxx..\nx.xx.\nx..xx");
}

TEST(Visible, NegativePositionsAreNotGlobal) {
  AttentionProblem p = sized(3, 3);
  p.align = Align::q_offset;
  p.q_offset = {-2};
  p.window_left = p.window_right = 0;
  p.global_tokens = 1;
  EXPECT_EQ(picture(p), "x..\nx..\nxxx");
}

TEST(Visible, LeftPadsShiftPositionsWithTheRows) {
  AttentionProblem p = sized(7, 7);
  p.base = Base::causal;
  p.left_pad_q = p.left_pad_k = {3};
  EXPECT_EQ(picture(p),
            ".......\n.......\n.......\n"
            "...x...\n...xx..\n...xxx.\n...xxxx");
  EXPECT_EQ(key_positions(p, 0), (std::vector<std::int64_t>{0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(real_key_rows(p, 0), (std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 1}));
}

TEST(Visible, LengthsAreEndRowsCountedFromRowZero) {
  AttentionProblem p = sized(4, 6);
  p.batch = 2;
  p.base = Base::causal;
  p.left_pad_k = {1, 0};
  p.seqlens_k = {4, 6};
  p.seqlens_q = {4, 2};
  // b = 0: 3 keys (rows 1..3), 4 queries, offset -1. b = 1: 6 keys, 2 queries, offset 4.
  EXPECT_EQ(picture(p, {}, 0), "......\n.x....\n.xx...\n.xxx..");
  EXPECT_EQ(picture(p, {}, 1), "xxxxx.\nxxxxxx\n......\n......");
  EXPECT_EQ(real_query_rows(p, 1), (std::vector<std::uint8_t>{1, 1, 0, 0}));
}

TEST(Visible, SegmentsRestartPositionsAndAlignEachByItself) {
  AttentionProblem p = sized(5, 9);
  p.base = Base::causal;
  p.cu_seqlens_q = {0, 2, 4};
  p.cu_seqlens_k = {0, 3, 8};
  EXPECT_EQ(picture(p), "xx.......\nxxx......\n...xxxx..\n...xxxxx.\n.........");
  EXPECT_EQ(query_positions(p, 0), (std::vector<std::int64_t>{1, 2, 3, 4, 0}));
  EXPECT_EQ(key_positions(p, 0), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(real_query_rows(p, 0), (std::vector<std::uint8_t>{1, 1, 1, 1, 0}));
}

TEST(Visible, EmptySegmentsOwnNoRow) {
  AttentionProblem p = sized(3, 3);
  p.cu_seqlens_q = {0, 0, 2, 3};
  p.cu_seqlens_k = {0, 2, 2, 3};
  EXPECT_EQ(picture(p), "...\n...\n..x");
}

TEST(Visible, SegmentsTakeTheirOwnOffsetAndPrefix) {
  AttentionProblem p = sized(4, 6);
  p.cu_seqlens_q = {0, 2, 4};
  p.cu_seqlens_k = {0, 3, 6};
  p.base = Base::prefix;
  p.prefix_len = {0, 2};
  p.align = Align::q_offset;
  p.q_offset = {1, 0};
  EXPECT_EQ(picture(p), "xx....\nxxx...\n...xx.\n...xx.");
}

TEST(Visible, MaskAndBlocksBroadcastAndCountRowsOfTheCall) {
  AttentionProblem p = sized(2, 4);
  p.num_heads = 2;
  AttentionInputs inputs;
  inputs.mask = Dense<std::uint8_t>({1, 2, 1, 4});
  inputs.mask.values = {1, 0, 1, 1, 0, 1, 1, 1};
  EXPECT_EQ(picture(p, inputs, 0, 0), "x.xx\nx.xx");
  EXPECT_EQ(picture(p, inputs, 0, 1), ".xxx\n.xxx");
  p.block_q = 1;
  p.block_k = 3;
  inputs.blocks = Dense<std::uint8_t>({1, 1, 2, 2});
  inputs.blocks.values = {1, 0, 0, 1};
  EXPECT_EQ(picture(p, inputs, 0, 0), "x.x.\n...x");
}

TEST(Visible, BiasOfMinusInfinityHidesAndALowestNumberDoesNot) {
  AttentionProblem p = sized(1, 3);
  AttentionInputs inputs;
  inputs.bias = Dense<double>({1, 1, 1, 3});
  inputs.bias.values = {0, -std::numeric_limits<double>::infinity(),
                        -limits(DType::f32).max_finite};
  EXPECT_EQ(picture(p, inputs), "x.x");
  EXPECT_TRUE(visible(p, inputs, rows_of(p, 0), 0, 0, 0, 1));
}

TEST(Visible, ConsecutiveQueryHeadsShareAKeyValueHead) {
  AttentionProblem p;
  p.num_heads = 6;
  p.num_kv_heads = 2;
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < 6; ++h) heads.push_back(kv_head(p, h));
  EXPECT_EQ(heads, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1}));
}

TEST(Visible, WindowEqualities) {
  for (std::int64_t q_len = 1; q_len <= 6; ++q_len)
    for (std::int64_t kv_len = 1; kv_len <= 6; ++kv_len) {
      AttentionProblem unlimited = sized(q_len, kv_len), causal = unlimited, left_open = unlimited;
      causal.base = Base::causal;
      left_open.window_right = 0;
      EXPECT_EQ(picture(causal), picture(left_open));
      AttentionProblem whole = unlimited;
      whole.window_left = whole.window_right = std::numeric_limits<std::int64_t>::max() / 2;
      EXPECT_EQ(picture(unlimited), picture(whole));
      AttentionProblem no_prefix = unlimited;
      no_prefix.base = Base::prefix;
      no_prefix.prefix_len = {0};
      EXPECT_EQ(picture(causal), picture(no_prefix));
    }
  AttentionProblem p = sized(8, 8);
  p.base = Base::causal;
  p.window_left = 2;  // "sliding window 3": oneself and two before
  const auto set = visible_set(p, {}, 0, 0);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(std::count(set.begin() + static_cast<std::ptrdiff_t>(8 * i),
                         set.begin() + static_cast<std::ptrdiff_t>(8 * i + 8), 1),
              std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(i) + 1, 3));
}

TEST(Visible, DecodingStepByStepSeesWhatOneCallSees) {
  AttentionProblem whole = sized(8, 8);
  whole.base = Base::causal;
  whole.window_left = 2;
  whole.global_tokens = 1;
  const auto expected = visible_set(whole, {}, 0, 0);
  std::vector<std::uint8_t> stepped;
  for (std::int64_t position = 0; position < 8; ++position) {
    AttentionProblem step = whole;
    step.q_len = 1;
    step.align = Align::q_offset;
    step.q_offset = {position};
    const auto row = visible_set(step, {}, 0, 0);
    stepped.insert(stepped.end(), row.begin(), row.end());
  }
  EXPECT_EQ(stepped, expected);
}

/// Section 3 read a second time, with sets in place of comparisons: which rows each sequence owns,
/// and which key positions a query position may see.
class SetReading {
 public:
  SetReading(const AttentionProblem& p, const AttentionInputs& inputs) : p_(p), inputs_(inputs) {}

  std::vector<std::uint8_t> visible_set(std::int64_t b, std::int64_t h) const {
    std::set<std::pair<std::int64_t, std::int64_t>> pairs;
    const auto segments = static_cast<std::int64_t>(p_.cu_seqlens_q.size()) - 1;
    for (std::int64_t s = 0; s < std::max<std::int64_t>(segments, 1); ++s) {
      const std::vector<std::int64_t> queries =
          owned(p_.cu_seqlens_q, p_.left_pad_q, p_.seqlens_q, p_.q_len, b, s);
      const std::vector<std::int64_t> keys =
          owned(p_.cu_seqlens_k, p_.left_pad_k, p_.seqlens_k, p_.kv_len, b, s);
      const std::int64_t sequence = segments > 0 ? s : b;
      std::int64_t first = 0;  // position of the first query
      if (p_.align == Align::bottom_right)
        first = static_cast<std::int64_t>(keys.size()) - static_cast<std::int64_t>(queries.size());
      if (p_.align == Align::q_offset) first = p_.q_offset[static_cast<std::size_t>(sequence)];
      for (std::size_t n = 0; n < queries.size(); ++n)
        for (std::int64_t position :
             seen_positions(first + static_cast<std::int64_t>(n),
                            static_cast<std::int64_t>(keys.size()), sequence)) {
          const std::int64_t i = queries[n], j = keys[static_cast<std::size_t>(position)];
          if (shown_by_tensors(b, h, i, j)) pairs.insert({i, j});
        }
    }
    std::vector<std::uint8_t> set;
    for (std::int64_t i = 0; i < p_.q_len; ++i)
      for (std::int64_t j = 0; j < p_.kv_len; ++j) set.push_back(pairs.count({i, j}) > 0);
    return set;
  }

 private:
  static std::vector<std::int64_t> owned(const std::vector<std::int64_t>& cuts,
                                         const std::vector<std::int64_t>& pads,
                                         const std::vector<std::int64_t>& ends, std::int64_t length,
                                         std::int64_t b, std::int64_t s) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < length; ++row) {
      const auto sb = static_cast<std::size_t>(b), ss = static_cast<std::size_t>(s);
      if (!cuts.empty() && (row < cuts[ss] || row >= cuts[ss + 1])) continue;
      if (!pads.empty() && row < pads[sb]) continue;
      if (!ends.empty() && row >= ends[sb]) continue;
      rows.push_back(row);
    }
    return rows;
  }

  std::set<std::int64_t> seen_positions(std::int64_t query, std::int64_t num_keys,
                                        std::int64_t sequence) const {
    std::set<std::int64_t> base, band;
    for (std::int64_t key = 0; key < num_keys; ++key) {
      const bool future = key > query;
      const bool in_prefix =
          p_.base == Base::prefix && key < p_.prefix_len[static_cast<std::size_t>(sequence)];
      if (p_.base == Base::full || !future || in_prefix) base.insert(key);
    }
    const std::int64_t far = 1000;
    const std::int64_t left = p_.window_left == -1 ? far : p_.window_left;
    const std::int64_t right = p_.window_right == -1 ? far : p_.window_right;
    for (std::int64_t key = query - left; key <= query + right; ++key) band.insert(key);
    for (std::int64_t key = 0; key < p_.global_tokens; ++key) band.insert(key);
    if (query >= 0 && query < p_.global_tokens)
      for (std::int64_t key = 0; key < num_keys; ++key) band.insert(key);
    std::set<std::int64_t> both;
    std::set_intersection(base.begin(), base.end(), band.begin(), band.end(),
                          std::inserter(both, both.end()));
    return both;
  }

  bool shown_by_tensors(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const auto entry = [](const Dense<std::uint8_t>& t, std::int64_t a0, std::int64_t a1,
                          std::int64_t a2, std::int64_t a3) {
      const auto [n0, n1, n2, n3] = t.shape;
      return t.values[static_cast<std::size_t>(((a0 % n0 * n1 + a1 % n1) * n2 + a2 % n2) * n3 +
                                               a3 % n3)];
    };
    if (inputs_.mask.present && !entry(inputs_.mask, b, h, i, j)) return false;
    return !inputs_.blocks.present ||
           entry(inputs_.blocks, b, h, i / p_.block_q, j / p_.block_k) != 0;
  }

  const AttentionProblem& p_;
  const AttentionInputs& inputs_;
};

TEST(Visible, AgreesWithASecondReadingInSets) {
  std::int64_t shown = 0, hidden = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const AttentionProblem p = random_masked_problem(seed);
    ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
    const AttentionInputs inputs = random_inputs(p, seed);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads; ++h) {
        const auto set = visible_set(p, inputs, b, h);
        ASSERT_EQ(set, SetReading(p, inputs).visible_set(b, h)) << print_case(p);
        shown += std::count(set.begin(), set.end(), 1);
        hidden += std::count(set.begin(), set.end(), 0);
      }
  }
  EXPECT_GT(shown, 15'000);  // neither all nor nothing
  EXPECT_GT(hidden, 15'000);
}

TEST(Visible, FactorsTogetherAreTheWhole) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const AttentionProblem p = random_masked_problem(seed);
    const AttentionInputs inputs = random_inputs(p, seed);
    const Rows rows = rows_of(p, 0);
    for (std::int64_t i = 0; i < p.q_len; ++i)
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        ASSERT_EQ(visible_factors(p, inputs, rows, 0, 0, i, j).all(),
                  visible(p, inputs, rows, 0, 0, i, j))
            << print_case(p) << " i=" << i << " j=" << j;
  }
}

}  // namespace
}  // namespace attest
