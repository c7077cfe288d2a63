// SPDX-License-Identifier: Apache-2.0
// The forward definition by hand: steps 1 to 7 of docs/semantics.md section 2 on cases small enough
// to work out. With a single visible key lse is that key's score z, which shows every step alone.
#include "reference/definition.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::random_inputs;
using testing_support::same;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  AttentionProblem problem;
  AttentionInputs inputs;
  ExactRow row(std::int64_t i = 0, std::int64_t h = 0, std::int64_t b = 0) const {
    return definition_row(problem, inputs, b, h, i, 50, true);
  }
};

/// One query with the given scores; v is the identity, so that o is the weights.
Case scored(const std::vector<double>& scores) {
  Case c;
  const auto n = static_cast<std::int64_t>(scores.size());
  c.problem.kv_len = c.problem.v_head_dim = n;
  c.problem.scale = 1;
  c.inputs.q = Dense<double>({1, 1, 1, 1});
  c.inputs.q.values = {1};
  c.inputs.k = Dense<double>({1, 1, n, 1});
  c.inputs.k.values = scores;
  c.inputs.v = Dense<double>({1, 1, n, n});
  for (std::int64_t j = 0; j < n; ++j) c.inputs.v.at(0, 0, j, j) = 1;
  return c;
}

std::vector<double> values(const ExactRow& row) {
  std::vector<double> o;
  for (const ExactNumber& x : row.o) o.push_back(x.high);
  return o;
}

TEST(Definition, SoftmaxOfTwoOneZero) {
  const ExactRow row = scored({2, 1, 0}).row();
  EXPECT_EQ(row.kind, RowKind::ordinary);
  EXPECT_EQ(row.o[0].digits, "0.66524095577482188953");
  EXPECT_EQ(row.o[1].digits, "0.24472847105479765247");
  EXPECT_EQ(row.o[2].digits, "0.090030573170380457998");
  EXPECT_EQ(row.lse.digits, "2.4076059644443803045");
  EXPECT_EQ(row.lse.high, 2.4076059644443803045);
  EXPECT_NE(row.lse.low, 0);
}

TEST(Definition, LowIsWhatHighLeaves) {
  // lse of two equal scores 0 is ln 2: the double nearest to it, and ln 2 minus that double.
  const ExactRow row = scored({0, 0}).row();
  EXPECT_EQ(row.lse.high, 0x1.62e42fefa39efp-1);
  EXPECT_EQ(row.lse.low, 0x1.abc9e3b39803fp-56);
}

TEST(Definition, ScaleIsExactlyOneOverRootOfHeadDim) {
  Case c = scored({0});
  c.problem.head_dim = 2;
  c.problem.scale.reset();
  c.inputs.q = Dense<double>({1, 1, 1, 2});
  c.inputs.q.values = {1, 7};
  c.inputs.k = Dense<double>({1, 1, 1, 2});
  c.inputs.k.values = {3, 0};
  EXPECT_EQ(c.row().lse.digits, "2.1213203435596425732");  // 3 / sqrt 2
  c.problem.scale = -0.5;
  EXPECT_EQ(c.row().lse.high, -1.5);
  c.problem.scale = 0;
  EXPECT_EQ(c.row().lse.high, 0);
}

TEST(Definition, SoftcapIsTanh) {
  Case c = scored({3});
  c.problem.softcap = 2;
  EXPECT_EQ(c.row().lse.digits, "1.8102965072897328765");  // 2 tanh(1.5)
}

TEST(Definition, SoftcapComesBeforeTheMask) {
  Case c = scored({1, 5});
  c.problem.softcap = 2;
  c.problem.mask = MaskKind::list;
  c.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 2});
  c.inputs.mask.values = {1, 0};
  EXPECT_EQ(values(c.row()), (std::vector<double>{1, 0}));
}

TEST(Definition, BiasIsAddedAfterTheSoftcap) {
  Case c = scored({3});
  c.problem.softcap = 2;
  c.inputs.bias = Dense<double>({1, 1, 1, 1});
  c.inputs.bias.values = {0.5};
  EXPECT_EQ(c.row().lse.digits, "2.3102965072897328765");
}

TEST(Definition, BiasOfMinusInfinityTakesTheKeyAway) {
  Case c = scored({2, 9, 0});
  c.inputs.bias = Dense<double>({1, 1, 1, 3});
  c.inputs.bias.values = {0, -kInfinity, 1};
  const ExactRow row = c.row();  // scores 2 and 1: the logistic function of 1
  EXPECT_EQ(row.o[0].digits, "0.73105857863000487925");
  EXPECT_EQ(row.o[1].high, 0);
}

TEST(Definition, AlibiUsesPositions) {
  // One query at position 2 (bottom right), one visible key at position `key`.
  const auto lse = [](AlibiKind kind, std::int64_t key) {
    Case c = scored({1, 1, 1});
    c.problem.alibi = kind;
    c.inputs.slopes = Dense<double>({1, 1, 1, 1});
    c.inputs.slopes.values = {0.25};
    c.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 3});
    c.inputs.mask.values[static_cast<std::size_t>(key)] = 1;
    return c.row().lse.high;
  };
  EXPECT_EQ(lse(AlibiKind::absolute, 0), 0.5);
  EXPECT_EQ(lse(AlibiKind::signed_, 0), 0.5);
  EXPECT_EQ(lse(AlibiKind::key_anchored, 0), 1);
  EXPECT_EQ(lse(AlibiKind::key_anchored, 1), 1.25);
}

TEST(Definition, AlibiKindsDifferForFutureKeys) {
  Case c = scored({1, 1});
  c.problem.align = Align::top_left;  // query position 0, the second key is future
  c.inputs.slopes = Dense<double>({1, 1, 1, 1});
  c.inputs.slopes.values = {0.25};
  c.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 2});
  c.inputs.mask.values = {0, 1};
  c.problem.alibi = AlibiKind::absolute;
  EXPECT_EQ(c.row().lse.high, 0.75);
  c.problem.alibi = AlibiKind::signed_;
  EXPECT_EQ(c.row().lse.high, 1.25);
}

TEST(Definition, AlibiInsideTheSoftcap) {
  Case c = scored({3});
  c.problem.softcap = 2;
  c.problem.alibi = AlibiKind::absolute;
  c.problem.alibi_inside_softcap = true;
  c.problem.align = Align::q_offset;
  c.problem.q_offset = {3};
  c.inputs.slopes = Dense<double>({1, 1, 1, 1});
  c.inputs.slopes.values = {0.25};
  EXPECT_EQ(c.row().lse.digits, "1.6186021404035620241");  // 2 tanh((3 - 0.75) / 2)
  c.problem.alibi_inside_softcap = false;
  EXPECT_EQ(c.row().lse.digits, "1.0602965072897328765");  // 2 tanh(1.5) - 0.75
}

TEST(Definition, SlopesArePerHeadAndMayBePerSequence) {
  Case c;
  c.problem.batch = 2;
  c.problem.num_heads = 2;
  c.problem.num_kv_heads = 2;
  c.problem.scale = 0;
  c.problem.alibi = AlibiKind::absolute;
  c.problem.align = Align::q_offset;
  c.problem.q_offset = {1, 1};
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.slopes = Dense<double>({2, 2, 1, 1});
  c.inputs.slopes.values = {1, 2, 3, 4};
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      EXPECT_EQ(c.row(0, h, b).lse.high, -static_cast<double>(1 + 2 * b + h));
}

TEST(Definition, QueryHeadsMapToKeyValueHeadsByFloor) {
  Case c;
  c.problem.num_heads = 4;
  c.problem.num_kv_heads = 2;
  c.problem.scale = 1;
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.q.values = {1, 1, 1, 1};
  c.inputs.k.values = {10, 20};
  c.inputs.v.values = {3, 5};
  for (std::int64_t h = 0; h < 4; ++h) {
    EXPECT_EQ(c.row(0, h).lse.high, h < 2 ? 10 : 20);
    EXPECT_EQ(c.row(0, h).o[0].high, h < 2 ? 3 : 5);
  }
}

TEST(Definition, SinkIsAnExtraKeyWithoutValue) {
  Case with_sink = scored({2, 1});
  with_sink.inputs.sink = Dense<double>({1, 1, 1, 1});
  with_sink.inputs.sink.values = {0};
  Case extra_key = scored({2, 1, 0});
  extra_key.inputs.v.at(0, 0, 2, 2) = 0;
  const ExactRow a = with_sink.row(), b = extra_key.row();
  EXPECT_TRUE(same(a.lse, b.lse));
  EXPECT_TRUE(same(a.o[0], b.o[0]));
  EXPECT_TRUE(same(a.o[1], b.o[1]));
}

TEST(Definition, SinkIsRaw) {
  // Not scaled, capped or dropped: all keys hidden but for a sink of 5.
  Case c = scored({1});
  c.problem.scale = 0.25;
  c.problem.softcap = 1;
  c.inputs.sink = Dense<double>({1, 1, 1, 1});
  c.inputs.sink.values = {5};
  c.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 1});
  EXPECT_EQ(c.row().kind, RowKind::empty_sink);
  EXPECT_EQ(c.row().lse.high, 5);
  EXPECT_EQ(c.row().o[0].high, 0);
}

TEST(Definition, SinkOfMinusInfinityIsNone) {
  Case c = scored({2, 1});
  const ExactRow without = c.row();
  c.inputs.sink = Dense<double>({1, 1, 1, 1});
  c.inputs.sink.values = {-kInfinity};
  EXPECT_TRUE(same(c.row(), without));
}

TEST(Definition, DropoutScalesWhatItKeepsAndLeavesLseAlone) {
  Case c = scored({0, 0, 0, 0});
  c.problem.dropout_p = 0.25;
  c.inputs.keep = Dense<std::uint8_t>({1, 1, 1, 4});
  c.inputs.keep.values = {1, 0, 1, 1};
  const ExactRow row = c.row();  // 1/4 each, kept ones divided by 3/4
  EXPECT_EQ(row.o[0].digits, "0.33333333333333333333");
  EXPECT_EQ(row.o[1].high, 0);
  EXPECT_EQ(row.lse.digits, "1.3862943611198906188");  // ln 4
}

TEST(Definition, RopeRotatesByRelativePosition) {
  // Query (1, 0) and key (1, 0) of one pair: the score is cos of the distance.
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    Case c;
    c.problem.head_dim = 2;
    c.problem.scale = 1;
    c.problem.rope = pairing;
    c.problem.align = Align::q_offset;
    c.problem.q_offset = {1};
    c.inputs = random_inputs(c.problem, 1);
    c.inputs.q.values = {1, 0};
    c.inputs.k.values = {1, 0};
    EXPECT_EQ(c.row().lse.digits, "0.5403023058681397174");  // cos 1
    c.inputs.k.values = {0, 1};
    EXPECT_EQ(c.row().lse.digits, "0.84147098480789650665");  // sin 1
  }
}

TEST(Definition, HugeScoresDoNotOverflow) {
  const ExactRow row = scored({1e300, 1e300, -1e300}).row();
  EXPECT_EQ(values(row), (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_EQ(row.lse.high, 1e300);
}

TEST(Definition, HeadDimZeroScoresZero) {
  Case c;
  c.problem.head_dim = 0;
  c.problem.scale = 1;
  c.problem.kv_len = 2;
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.v.values = {1, 2};
  EXPECT_EQ(c.row().o[0].high, 1.5);
  EXPECT_EQ(c.row().lse.high, 0x1.62e42fefa39efp-1);
}

TEST(Definition, ValueDimZeroStillHasLse) {
  Case c;
  c.problem.v_head_dim = 0;
  c.problem.scale = 1;
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.q.values = {2};
  c.inputs.k.values = {3};
  EXPECT_TRUE(c.row().o.empty());
  EXPECT_EQ(c.row().lse.high, 6);
}

TEST(Definition, EmptyRowsFollowTheConvention) {
  Case c;
  c.problem.kv_len = 4;
  c.problem.left_pad_k = {1};
  c.problem.seqlens_k = {3};
  c.problem.base = Base::causal;
  c.problem.align = Align::q_offset;
  c.problem.q_offset = {-1};
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.v.values = {100, 1, 2, 100};
  EXPECT_EQ(c.row().kind, RowKind::empty);
  EXPECT_EQ(c.row().o[0].high, 0);
  EXPECT_EQ(c.row().lse.high, -kInfinity);
  c.problem.empty_output = EmptyOutput::mean_v;
  c.problem.empty_lse = EmptyLse::pos_inf;
  EXPECT_EQ(c.row().o[0].high, 1.5);  // real key rows alone
  EXPECT_EQ(c.row().lse.high, kInfinity);
  c.problem.empty_output = EmptyOutput::nan;
  c.problem.empty_lse = EmptyLse::zero;
  EXPECT_TRUE(std::isnan(c.row().o[0].high));
  EXPECT_EQ(c.row().lse.high, 0);
  c.inputs.sink = Dense<double>({1, 1, 1, 1});
  c.inputs.sink.values = {-2};
  EXPECT_EQ(c.row().kind, RowKind::empty_sink);
  EXPECT_EQ(c.row().o[0].high, 0);
  EXPECT_EQ(c.row().lse.high, -2);
}

TEST(Definition, NoKeysAtAllIsEmpty) {
  Case c;
  c.problem.kv_len = 0;
  c.problem.empty_output = EmptyOutput::mean_v;
  c.inputs = random_inputs(c.problem, 1);
  EXPECT_EQ(c.row().kind, RowKind::empty);
  EXPECT_EQ(c.row().o[0].high, 0);
}

TEST(Definition, PaddingRowsAreZeroAlsoWithASink) {
  Case c;
  c.problem.q_len = 2;
  c.problem.seqlens_q = {1};
  c.problem.empty_output = EmptyOutput::nan;
  c.problem.empty_lse = EmptyLse::zero;
  c.inputs = random_inputs(c.problem, 1);
  c.inputs.sink = Dense<double>({1, 1, 1, 1});
  EXPECT_EQ(c.row(0).kind, RowKind::ordinary);
  EXPECT_EQ(c.row(1).kind, RowKind::padding);
  EXPECT_EQ(c.row(1).o[0].high, 0);
  EXPECT_EQ(c.row(1).lse.high, -kInfinity);
}

TEST(Definition, AFiniteMaskValueBesideOrdinaryScoresWeighsNothing) {
  Case c = scored({2, 1, 0, 7});
  c.inputs.bias = Dense<double>({1, 1, 1, 4});
  c.inputs.bias.values = {0, 0, 0, -limits(DType::f32).max_finite};
  const ExactRow row = c.row();
  EXPECT_EQ(row.kind, RowKind::ordinary);
  EXPECT_EQ(row.o[0].digits, "0.66524095577482188953");
  EXPECT_EQ(row.o[3].high, 0);
}

}  // namespace
}  // namespace attest
