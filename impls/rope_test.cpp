// SPDX-License-Identifier: Apache-2.0
// The laws of RoPE, which hold for both of its forms: as complex numbers and from a table.
#include <cmath>
#include <numeric>

#include "impls/rope_complex.hpp"
#include "impls/rope_table.hpp"
#include "impls/testing.hpp"

namespace attest::testing {
namespace {

struct Settings {
  std::int32_t pairing;
  std::int64_t rope_dim;
  double scale = 1, ntk = 1;
};
using Row = std::vector<double>;

/// R(direction * position) row of 40 channels at most, computed in C.
template <class C>
Row by_complex(const Settings& s, const Row& row, std::int64_t position, int direction = 1) {
  std::vector<C> turned(row.begin(), row.end());
  rope_complex(turned.data(), s.pairing, rope_frequencies(s.rope_dim, 10000, s.scale, s.ntk),
               position, direction);
  return {turned.begin(), turned.end()};
}
template <class C, std::int64_t kGap = 0>
Row by_table(const Settings& s, const Row& row, std::int64_t position, int direction = 1) {
  // Three rows around the position, in the memory order of columns where there is a gap.
  const std::vector<int> order = kGap > 0 ? std::vector<int>{1, 0} : std::vector<int>{};
  const DLDataType type = dl_dtype(sizeof(C) == 8 ? DType::f64 : DType::f32);
  Tensor cosines(type, {3, s.rope_dim / 2}, order, kGap), sines(type, {3, s.rope_dim / 2}, order);
  const std::vector<double> frequencies = rope_frequencies(s.rope_dim, 10000, s.scale, s.ntk);
  const auto angle = [&](const Shape& at) {
    return static_cast<double>(position - 1 + at[0]) * frequencies[static_cast<std::size_t>(at[1])];
  };
  cosines.fill([&](const Shape& at) { return std::cos(angle(at)); });
  sines.fill([&](const Shape& at) { return std::sin(angle(at)); });
  const RopeTable<C> table{TensorView<const C>(cosines.dl()), TensorView<const C>(sines.dl()),
                           position - 1};
  std::vector<C> turned(row.begin(), row.end());
  rope_by_table(turned.data(), s.pairing, s.rope_dim, table, position, direction);
  return {turned.begin(), turned.end()};
}

Row random_row(Numbers& numbers, std::size_t n) {
  Row row(n);
  for (double& x : row) x = static_cast<float>(numbers.real(-2, 2));
  return row;
}
double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void expect_near(const Row& a, const Row& b, double room) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t c = 0; c < a.size(); ++c) ASSERT_NEAR(a[c], b[c], room) << "channel " << c;
}

struct Form {
  const char* name;
  Row (*rotate)(const Settings&, const Row&, std::int64_t, int);
  double room;  ///< for channels below 4
};
void PrintTo(const Form& form, std::ostream* to) { *to << form.name; }
const Form kForms[] = {
    {"complex_f64", by_complex<double>, 1e-14},
    {"complex_f32", by_complex<float>, 1e-6},
    {"table_f64", by_table<double>, 1e-14},
    {"table_f32", by_table<float>, 1e-6},
    {"table_by_columns_f32", by_table<float, 3>, 1e-6},
};

class Rope : public ::testing::TestWithParam<Form> {
 protected:
  /// body(settings, head_dim) over both pairings, whole and partial, with more and fewer pairs than
  /// a vector has lanes.
  template <class Body>
  void for_all(Body&& body) {
    for (const std::int32_t pairing : {ATTEST_ROPE_INTERLEAVED, ATTEST_ROPE_HALF})
      for (const std::int64_t rope_dim : {0, 2, 6, 14, 36})
        for (const std::size_t more : {0, 1, 4}) {
          SCOPED_TRACE(::testing::Message() << "pairing " << pairing << " rope_dim " << rope_dim);
          body(Settings{pairing, rope_dim}, static_cast<std::size_t>(rope_dim) + more);
          if (HasFatalFailure()) return;
        }
  }
  Row rotate(const Settings& s, const Row& row, std::int64_t position, int direction = 1) {
    return GetParam().rotate(s, row, position, direction);
  }
  double room() { return GetParam().room; }
  Numbers numbers{1};
};

TEST_P(Rope, IsTheFormula) {
  const Settings interleaved{ATTEST_ROPE_INTERLEAVED, 4}, half{ATTEST_ROPE_HALF, 4};
  const Row row{1, 2, 3, 4, 5};
  const double a = 7, b = 7 * std::pow(10000.0, -0.5);
  const double ca = std::cos(a), sa = std::sin(a), cb = std::cos(b), sb = std::sin(b);
  expect_near(rotate(interleaved, row, 7),
              {ca - 2 * sa, sa + 2 * ca, 3 * cb - 4 * sb, 3 * sb + 4 * cb, 5}, 5 * room());
  expect_near(rotate(half, row, 7), {ca - 3 * sa, 2 * cb - 4 * sb, sa + 3 * ca, 2 * sb + 4 * cb, 5},
              5 * room());
}

TEST_P(Rope, KeepsTheNormAndWhatIsNotRotated) {
  for_all([&](const Settings& s, std::size_t dim) {
    const Row row = random_row(numbers, dim), turned = rotate(s, row, 1234);
    ASSERT_NEAR(dot(row, row), dot(turned, turned), 100 * room());
    for (std::size_t c = static_cast<std::size_t>(s.rope_dim); c < dim; ++c)
      ASSERT_EQ(row[c], turned[c]);
  });
}

TEST_P(Rope, ScoreDependsOnTheDistanceAlone) {
  for_all([&](const Settings& s, std::size_t dim) {
    const Row q = random_row(numbers, dim), k = random_row(numbers, dim);
    const auto score = [&](std::int64_t qpos, std::int64_t kpos) {
      return dot(rotate(s, q, qpos), rotate(s, k, kpos));
    };
    // An angle of 1000 radians in double is off by 1e-13.
    for (const std::int64_t shift : {1, 17, 1000})
      ASSERT_NEAR(score(9, 4), score(9 + shift, 4 + shift), 200 * room() + 1e-11) << shift;
    ASSERT_NEAR(score(3, 3), dot(q, k), 200 * room());
  });
}

TEST_P(Rope, RotatesBack) {
  for_all([&](const Settings& s, std::size_t dim) {
    const Row row = random_row(numbers, dim);
    const Row there = rotate(s, row, 77);
    ASSERT_NO_FATAL_FAILURE(expect_near(rotate(s, there, 77, -1), row, 4 * room()));
    ASSERT_NO_FATAL_FAILURE(expect_near(rotate(s, row, -77), rotate(s, row, 77, -1), 4 * room()));
  });
}

TEST_P(Rope, TakesAPositionPerRow) {
  const Settings s{ATTEST_ROPE_HALF, 36};
  const Row row = random_row(numbers, 36);
  // In any order, and again: nothing is kept between rows.
  const Row at_5 = rotate(s, row, 5), at_900 = rotate(s, row, 900);
  EXPECT_EQ(rotate(s, row, 0), row);
  EXPECT_EQ(rotate(s, row, 900), at_900);
  EXPECT_EQ(rotate(s, row, 5), at_5);
  expect_near(rotate(s, at_5, 895), at_900, 1e-12 + 8 * room());
}

TEST_P(Rope, LinearScalingDividesPositions) {
  for_all([&](const Settings& s, std::size_t dim) {
    const Row row = random_row(numbers, dim);
    Settings scaled = s;
    scaled.scale = 4;
    ASSERT_NO_FATAL_FAILURE(
        expect_near(rotate(scaled, row, 400), rotate(s, row, 100), 1e-12 + 8 * room()));
  });
}

TEST_P(Rope, NtkScalingStretchesTheSlowestPairAndLeavesTheFastest) {
  // base'^(-2t/R) = base^(-2t/R) ntk^(-2t/(R-2)): 1 for t = 0, and 1/ntk for the last t = R/2 - 1.
  const Settings plain{ATTEST_ROPE_INTERLEAVED, 6}, ntk{ATTEST_ROPE_INTERLEAVED, 6, 1, 8};
  const Row row = random_row(numbers, 6);
  const Row stretched = rotate(ntk, row, 800);
  const Row same_fastest = rotate(plain, row, 800), same_slowest = rotate(plain, row, 100);
  for (const std::size_t c : {0, 1}) EXPECT_NEAR(stretched[c], same_fastest[c], 1e-12 + 4 * room());
  for (const std::size_t c : {4, 5}) EXPECT_NEAR(stretched[c], same_slowest[c], 1e-12 + 4 * room());
  EXPECT_GT(std::fabs(stretched[2] - same_fastest[2]), 1e-3);
}

TEST_P(Rope, AllFormsAgree) {
  for_all([&](const Settings& s, std::size_t dim) {
    const Row row = random_row(numbers, dim);
    for (Settings scaled : {s, {s.pairing, s.rope_dim, 4}, {s.pairing, s.rope_dim, 1, 2.5}}) {
      if (s.rope_dim <= 2) scaled.ntk = 1;
      ASSERT_NO_FATAL_FAILURE(
          expect_near(rotate(scaled, row, 321), by_complex<double>(scaled, row, 321), 4 * room()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Rope, ::testing::ValuesIn(kForms),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attest::testing
