// SPDX-License-Identifier: Apache-2.0
#include "reference/audit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/definition.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An oracle made of the definition: radius 1e-9, tolerance 1e-6.
struct Fixture {
  AttentionProblem problem;
  AttentionInputs inputs;
  Expected expected;

  explicit Fixture(const AttentionProblem& p) : problem(p) {
    inputs = testing_support::random_inputs(p, 7);
    expected.has_tolerance = true;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads; ++h)
        for (std::int64_t i = 0; i < p.q_len; ++i) {
          const ExactRow row = definition_row(p, inputs, b, h, i);
          expected.rows.push_back(row.kind);
          for (const ExactNumber& x : row.o) add(expected.o, x.high);
          add(expected.lse, row.lse.high);
        }
  }
  static void add(ExpectedTensor& tensor, double value) {
    tensor.value.push_back(value);
    tensor.low.push_back(0);
    tensor.radius.push_back(1e-9);
    tensor.t_mixed.push_back(1e-6);
    tensor.t_stat.push_back(2e-6);
  }
  Audit audit(std::int64_t max_rows = 1000, std::int64_t max_pairs = 100'000) const {
    Audit result;
    audit_rows(problem, inputs, expected, 3, max_rows, max_pairs, result);
    return result;
  }
};

AttentionProblem causal() {
  AttentionProblem p;
  p.num_heads = 2;
  p.q_len = 4;
  p.kv_len = 3;
  p.v_head_dim = 2;
  p.base = Base::causal;  // the first query row of each head is empty
  return p;
}

TEST(Audit, TheDefinitionPassesItsOwnAudit) {
  const Audit audit = Fixture(causal()).audit();
  EXPECT_GE(audit.rows, 6);  // of 8: rows are drawn
  EXPECT_EQ(audit.elements, 3 * audit.rows);
  EXPECT_EQ(audit.outside, 0);
  EXPECT_EQ(audit.first_outside, "");
  EXPECT_LE(audit.worst_fraction_of_radius, 1e-6);  // rounding to double
  EXPECT_EQ(audit.worst_radius_over_tolerance, 1e-9 / 1e-6);
}

TEST(Audit, AnElementOutsideItsRadiusIsNamed) {
  AttentionProblem p = causal();
  p.num_heads = p.num_kv_heads = 1;
  p.q_len = p.kv_len = 1;
  Fixture f(p);
  f.expected.o.value[1] += 2e-9;
  const Audit audit = f.audit();
  EXPECT_EQ(audit.outside, 1);
  EXPECT_NEAR(audit.worst_fraction_of_radius, 2, 1e-5);
  EXPECT_NE(audit.first_outside.find("attention.forward"), std::string::npos);
  EXPECT_NE(audit.first_outside.find("o[1]"), std::string::npos);
  EXPECT_NE(audit.first_outside.find("b=0 h=0 i=0"), std::string::npos);
  f.expected.o.low[1] = -2e-9;  // value + low is right again
  EXPECT_EQ(f.audit().outside, 0);
}

TEST(Audit, NonFiniteValuesMustBeTheConvention) {
  AttentionProblem p = causal();
  p.num_heads = p.num_kv_heads = 1;
  p.q_len = 1;
  p.kv_len = 0;
  Fixture f(p);
  EXPECT_EQ(f.audit().outside, 0);
  f.expected.lse.value[0] = kInfinity;
  EXPECT_EQ(f.audit().outside, 1);
  f.expected.lse.value[0] = 0;
  EXPECT_EQ(f.audit().outside, 1);
  f.expected.lse.value[0] = std::nan("");
  EXPECT_EQ(f.audit().outside, 1);
  f.problem.empty_lse = EmptyLse::unspecified;  // nothing to hold it against
  EXPECT_EQ(f.audit().outside, 0);
}

TEST(Audit, TheKindOfRowMustAgree) {
  AttentionProblem p = causal();
  p.num_heads = p.num_kv_heads = 1;
  p.q_len = 1;
  Fixture f(p);
  f.expected.rows[0] = RowKind::empty;
  EXPECT_EQ(f.audit().outside, 1);
  f.expected.rows[0] = RowKind::outside_domain;  // the profile's business: nothing to compare
  EXPECT_EQ(f.audit().outside, 0);
  EXPECT_EQ(f.audit().elements, 0);
}

TEST(Audit, StaysWithinRowsAndPairs) {
  AttentionProblem p = causal();
  p.base = Base::full;
  p.q_len = 50;
  const Fixture f(p);  // 100 rows of 3 pairs
  EXPECT_EQ(f.audit(5).rows, 5);
  EXPECT_EQ(f.audit(1000, 10).rows, 3);
  EXPECT_EQ(f.audit(1000, 2).rows, 0);
}

TEST(Audit, ResultsAddUp) {
  const Fixture f(causal());
  Audit audit;
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    audit_rows(f.problem, f.inputs, f.expected, seed, 2, 100, audit);
  EXPECT_EQ(audit.rows, 6);
}

TEST(Audit, NoRowsNoAudit) {
  AttentionProblem p = causal();
  p.q_len = 0;
  EXPECT_EQ(Fixture(p).audit().rows, 0);
}

}  // namespace
}  // namespace attest
