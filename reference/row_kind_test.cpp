// SPDX-License-Identifier: Apache-2.0
#include "reference/row_kind.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "reference/testing.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Two queries over three keys under a causal base (row 0 sees keys 0 and 1), with every tensor
/// that can hold a NaN.
struct Fixture {
  AttentionProblem problem;
  AttentionInputs inputs;

  Fixture() {
    problem.q_len = 2;
    problem.kv_len = 3;
    problem.base = Base::causal;
    problem.bias = BiasKind::normal;
    problem.sink = SinkKind::normal;
    problem.alibi = AlibiKind::absolute;
    inputs = testing_support::random_inputs(problem, 1);
    inputs.sink.values[0] = -kInfinity;
  }
  RowKind kind(std::int64_t i) const {
    const Rows rows = rows_of(problem, 0);
    return row_kind(problem, inputs, rows, 0, 0, i, visible_keys(problem, inputs, rows, 0, 0, i));
  }
  void set_bias(std::int64_t i, double value) {
    for (std::int64_t j = 0; j < 3; ++j) inputs.bias.at(0, 0, i, j) = value;
  }
};

TEST(RowKind, VisibleKeysAscend) {
  const Fixture f;
  const Rows rows = rows_of(f.problem, 0);
  EXPECT_EQ(visible_keys(f.problem, f.inputs, rows, 0, 0, 0), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(visible_keys(f.problem, f.inputs, rows, 0, 0, 1), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(RowKind, FiniteValuesAreOrdinary) { EXPECT_EQ(Fixture{}.kind(0), RowKind::ordinary); }

TEST(RowKind, NonFiniteCountsWhereItIsVisible) {
  for (const double x : {kNan, kInfinity, -kInfinity}) {
    Fixture f;
    f.inputs.k.at(0, 0, 2, 0) = x;  // seen by row 1 alone
    EXPECT_EQ(f.kind(0), RowKind::ordinary) << x;
    EXPECT_EQ(f.kind(1), RowKind::unspecified) << x;
    Fixture g;
    g.inputs.v.at(0, 0, 2, 0) = x;
    EXPECT_EQ(g.kind(0), RowKind::ordinary) << x;
    EXPECT_EQ(g.kind(1), RowKind::unspecified) << x;
    Fixture q;
    q.inputs.q.at(0, 0, 1, 0) = x;
    EXPECT_EQ(q.kind(0), RowKind::ordinary) << x;
    EXPECT_EQ(q.kind(1), RowKind::unspecified) << x;
  }
}

TEST(RowKind, BiasNanAndPlusInfinityCountMinusInfinityHides) {
  Fixture f;
  f.inputs.bias.at(0, 0, 0, 2) = kNan;  // key 2 is invisible to row 0
  EXPECT_EQ(f.kind(0), RowKind::ordinary);
  f.inputs.bias.at(0, 0, 0, 1) = -kInfinity;
  EXPECT_EQ(f.kind(0), RowKind::ordinary);
  f.inputs.bias.at(0, 0, 0, 1) = kInfinity;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
  f.inputs.bias.at(0, 0, 0, 1) = kNan;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
}

TEST(RowKind, NonFiniteUnderABiasOfMinusInfinityIsUnspecified) {
  Fixture f;
  f.inputs.bias.at(0, 0, 0, 1) = -kInfinity;
  f.inputs.v.at(0, 0, 1, 0) = kNan;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
}

TEST(RowKind, SinkAndSlope) {
  Fixture f;
  f.inputs.sink.values[0] = kNan;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
  f.inputs.sink.values[0] = kInfinity;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
  f.inputs.sink.values[0] = 3;
  EXPECT_EQ(f.kind(0), RowKind::ordinary);
  f.inputs.slopes.values[0] = kNan;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
}

TEST(RowKind, EmptyByMaskIgnoresNanInTheQuery) {
  Fixture f;
  f.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 1});
  f.inputs.q.values[0] = kNan;
  EXPECT_EQ(f.kind(0), RowKind::empty);
  f.inputs.sink.values[0] = 3;
  EXPECT_EQ(f.kind(0), RowKind::empty_sink);
}

TEST(RowKind, EmptyByBias) {
  Fixture f;
  f.set_bias(0, -kInfinity);
  EXPECT_EQ(f.kind(0), RowKind::empty);
  EXPECT_EQ(f.kind(1), RowKind::ordinary);
}

TEST(RowKind, EmptyRowsThatAverageVDependOnIt) {
  Fixture f;
  f.inputs.mask = Dense<std::uint8_t>({1, 1, 1, 1});
  f.inputs.v.at(0, 0, 2, 0) = kNan;
  EXPECT_EQ(f.kind(0), RowKind::empty);
  f.problem.empty_output = EmptyOutput::mean_v;
  EXPECT_EQ(f.kind(0), RowKind::unspecified);
}

TEST(RowKind, LowestOnlyNeedsAFiniteMaskValueOnEveryScore) {
  for (const DType type : kAllDTypes) {
    Fixture f;
    f.problem.dtype = type;
    f.set_bias(0, -limits(type).max_finite);
    EXPECT_EQ(f.kind(0), RowKind::lowest_only) << name(type);
    f.set_bias(0, -limits(type).max_finite / 2);
    EXPECT_EQ(f.kind(0), RowKind::lowest_only) << name(type);
    f.inputs.bias.at(0, 0, 0, 0) = -kInfinity;
    EXPECT_EQ(f.kind(0), RowKind::lowest_only) << name(type);
    f.inputs.bias.at(0, 0, 0, 0) = -limits(type).max_finite / 4;
    EXPECT_EQ(f.kind(0), RowKind::ordinary) << name(type);
    f.set_bias(0, -limits(type).max_finite);
    f.inputs.sink.values[0] = 3;  // an ordinary score: the keys weigh nothing beside it
    EXPECT_EQ(f.kind(0), RowKind::ordinary) << name(type);
  }
}

TEST(RowKind, PaddingIsNeverRead) {
  Fixture f;
  f.problem.seqlens_q = {1};
  f.inputs.q.at(0, 0, 1, 0) = kNan;
  f.inputs.sink.values[0] = kNan;
  EXPECT_EQ(f.kind(1), RowKind::padding);
}

TEST(RowKind, DomainIsAQuarterOfTheAccumulator) {
  const double limit = 0x1p126;
  EXPECT_TRUE(inside_domain(1, 1, 1, 4 * limit));
  EXPECT_FALSE(inside_domain(limit, 1, 1, 4 * limit));
  EXPECT_FALSE(inside_domain(1, limit, 1, 4 * limit));
  EXPECT_FALSE(inside_domain(1, 1, limit, 4 * limit));
  EXPECT_FALSE(inside_domain(kNan, 1, 1, 4 * limit));
}

}  // namespace
}  // namespace attest
