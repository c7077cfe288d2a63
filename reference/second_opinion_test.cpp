// SPDX-License-Identifier: Apache-2.0
// The definition on three number types: MPFR at 50 and 100 digits, and Boost's own binary floats.
#include <gtest/gtest.h>

#include "attest/case_line.hpp"
#include "reference/multiprecision.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::random_inputs;
using testing_support::random_problem;

/// Scores of random problems stay below 200 and |o| below 3: 45 digits are 1e-45 of that.
template <class T>
bool agree(const T& a, const Mpfr100& b) {
  const Mpfr100 difference = Mpfr100(a.str(60, std::ios_base::scientific)) - b;
  return abs(difference) <= Mpfr100("1e-45") * Mpfr100(1 + abs(b));
}

TEST(SecondOpinion, NumberTypesAgreeTo45Digits) {
  std::int64_t rows = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const AttentionInputs x = random_inputs(p, seed);
    const Rows where = rows_of(p, 0);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const auto certified = forward_row<Mpfr100>(p, x, where, 0, 0, i);
      if (certified.kind != RowKind::ordinary) continue;
      const auto fast = forward_row<Mpfr50>(p, x, where, 0, 0, i);
      const auto other = forward_row<BinFloat50>(p, x, where, 0, 0, i);
      ASSERT_TRUE(agree(fast.lse, certified.lse)) << print_case(p);
      ASSERT_TRUE(agree(other.lse, certified.lse)) << print_case(p);
      for (std::size_t c = 0; c < certified.o.size(); ++c) {
        ASSERT_TRUE(agree(fast.o[c], certified.o[c])) << print_case(p);
        ASSERT_TRUE(agree(other.o[c], certified.o[c])) << print_case(p);
      }
      ++rows;
    }
  }
  EXPECT_GT(rows, 300);
}

TEST(SecondOpinion, PlainTypesGiveTheSameRows) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const AttentionInputs x = random_inputs(p, seed);
    const ExactRow a = definition_row(p, x, 0, 0, 0);
    EXPECT_TRUE(testing_support::same(a, definition_row(p, x, 0, 0, 0, 100))) << print_case(p);
    EXPECT_TRUE(testing_support::same(a, definition_row_second_opinion(p, x, 0, 0, 0)))
        << print_case(p);
  }
}

}  // namespace
}  // namespace attest
