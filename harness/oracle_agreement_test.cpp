// SPDX-License-Identifier: Apache-2.0
// The fast oracle against the definition, over random problems of all families and features.
// ATTEST_ORACLE_CASES (default 300; tools/soak asks for 10,000) and ATTEST_ORACLE_SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "reference/audit.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

std::uint64_t from_environment(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

/// The definition costs about 8 us a (query, key) pair; longer problems are sampled row by row.
constexpr std::int64_t kMaxPairs = 20000;

struct Tally {
  std::int64_t elements = 0;
  double worst_error_over_radius = 0;
  double worst_radius_over_tolerance = 0;
};

/// Holds one output of one row against the definition; false stops the case at its first failure.
testing::AssertionResult inside(const ExactNumber& exact, const ExpectedTensor& expected,
                                std::size_t flat, DType dtype, bool ordinary, Tally& tally) {
  const double value = expected.value[flat];
  ++tally.elements;
  if (!std::isfinite(exact.high) || !std::isfinite(value)) {
    const bool same = (std::isnan(exact.high) && std::isnan(value)) || exact.high == value;
    return same
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "definition " << exact.high << ", oracle " << value;
  }
  // Differences of nearly equal doubles are exact: no precision is lost before the comparison.
  const double error = std::fabs((value - exact.high) + (expected.low[flat] - exact.low));
  const double radius = expected.radius[flat];
  if (!(error <= radius))
    return testing::AssertionFailure()
           << "error " << error << " outside the radius " << radius << " (definition " << exact.high
           << " + " << exact.low << ")";
  if (radius > 0)
    tally.worst_error_over_radius = std::max(tally.worst_error_over_radius, error / radius);
  if (!ordinary) return testing::AssertionSuccess();
  const double tolerance = tolerance_of(expected, flat);
  if (!(tolerance > 0) || !std::isfinite(tolerance))
    return testing::AssertionFailure() << "tolerance " << tolerance;
  const double share = radius / tolerance;
  tally.worst_radius_over_tolerance = std::max(tally.worst_radius_over_tolerance, share);
  if (!(share < (dtype == DType::f64 ? 0.1 : 1e-3)))
    return testing::AssertionFailure() << "the radius is " << share << " of the tolerance";
  return testing::AssertionSuccess();
}

TEST(OracleAgreement, EveryElementLiesInsideTheCertifiedRadius) {
  const std::uint64_t cases = from_environment("ATTEST_ORACLE_CASES", 300);
  const std::uint64_t seed = from_environment("ATTEST_ORACLE_SEED", 20240501);
  const auto declaration = parse_declaration(
      "dtype=f64,f32,f16,bf16 head_dim=1..256 v_head_dim=0..256 features=all layout=any "
      "precision.f16=mma_f32acc precision.bf16=mma_f32acc");
  ASSERT_TRUE(declaration) << declaration.error();
  std::map<DType, Tally> tallies;
  std::set<Feature> features;
  std::set<Family> families;
  for (std::uint64_t index = 0; index < cases; ++index) {
    const AttentionProblem problem = draw(*declaration, seed, "oracle-agreement", index);
    const std::string line = print_case(problem);
    SCOPED_TRACE(line);
    for (const Feature feature : features_of(problem)) features.insert(feature);
    families.insert(problem.data);
    const AttentionInputs inputs = make_inputs(problem);
    const Expected expected = expect(problem, inputs, declaration->profile_for(problem.dtype));
    Tally& tally = tallies[problem.dtype];

    const std::int64_t rows = problem.batch * problem.num_heads * problem.q_len;
    const std::int64_t pairs = rows * std::max<std::int64_t>(problem.kv_len, 1);
    const std::int64_t step = std::max<std::int64_t>(1, pairs / kMaxPairs);
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t i = row % problem.q_len;
      const std::int64_t h = row / problem.q_len % problem.num_heads;
      const std::int64_t b = row / problem.q_len / problem.num_heads;
      const RowKind kind = expected.rows[static_cast<std::size_t>(row)];
      const ExactRow exact = definition_row(problem, inputs, b, h, i);
      if (kind == RowKind::outside_domain || kind == RowKind::unspecified) continue;
      ASSERT_EQ(static_cast<int>(kind), static_cast<int>(exact.kind)) << "row " << row;
      if (kind == RowKind::lowest_only) {
        // Judged by an interval: floats absorb the scores, so that any weights are right.
        for (std::int64_t c = 0; c < problem.v_head_dim; ++c) {
          const auto flat = static_cast<std::size_t>(row * problem.v_head_dim + c);
          const double value = exact.o[static_cast<std::size_t>(c)].high;
          ASSERT_LE(expected.o_low[flat], value) << "row " << row << ", channel " << c;
          ASSERT_GE(expected.o_high[flat], value) << "row " << row << ", channel " << c;
        }
        continue;
      }
      const bool ordinary = kind == RowKind::ordinary;
      for (std::int64_t c = 0; c < problem.v_head_dim; ++c)
        ASSERT_TRUE(inside(exact.o[static_cast<std::size_t>(c)], expected.o,
                           static_cast<std::size_t>(row * problem.v_head_dim + c), problem.dtype,
                           ordinary, tally))
            << "o of row " << row << ", channel " << c;
      ASSERT_TRUE(inside(exact.lse, expected.lse, static_cast<std::size_t>(row), problem.dtype,
                         ordinary, tally))
          << "lse of row " << row;
    }
  }
  for (const auto& [dtype, tally] : tallies)
    std::printf("%-4s %9lld elements, error/radius at most %.3g, radius/tolerance at most %.3g\n",
                std::string(name(dtype)).c_str(), static_cast<long long>(tally.elements),
                tally.worst_error_over_radius, tally.worst_radius_over_tolerance);
  // 300 draws must meet all that can be met, or the sentence above says less than it seems to.
  EXPECT_EQ(tallies.size(), 4u);
  EXPECT_EQ(features.size(), static_cast<std::size_t>(kNumFeatures));
  EXPECT_EQ(families.size(), static_cast<std::size_t>(Family::list));
}

}  // namespace
}  // namespace attest
