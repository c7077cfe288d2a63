// SPDX-License-Identifier: Apache-2.0
#include "impls/contract.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace attest {
namespace {

Named<double> counted(std::string_view axes, std::vector<std::int64_t> extents) {
  Named<double> array(axes, std::move(extents));
  std::iota(array.values.begin(), array.values.end(), 1);
  return array;
}

TEST(Contract, MatrixProduct) {
  const auto a = counted("ik", {2, 3}),
             b = counted("kj", {3, 2});  // 1 2 3 / 4 5 6; 1 2 / 3 4 / 5 6
  Named<double> out;
  contract("ik,kj->ij", a, b, out);
  EXPECT_EQ(out.axes, "ij");
  EXPECT_EQ(out.extents, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(out.values, (std::vector<double>{22, 28, 49, 64}));
}

TEST(Contract, SharedIndexIsNoSum) {
  const auto a = counted("bk", {2, 2}), b = counted("bkj", {2, 2, 2});
  Named<double> out;
  contract("bk,bkj->bj", a, b, out);
  // b = 0: 1*(1 2) + 2*(3 4); b = 1: 3*(5 6) + 4*(7 8)
  EXPECT_EQ(out.values, (std::vector<double>{7, 10, 43, 50}));
}

TEST(Contract, ResultOrderIsFree) {
  const auto a = counted("ri", {2, 2}), b = counted("rj", {2, 2});
  Named<double> out;
  contract("ri,rj->irj", a, b, out);  // out[i][r][j] = a[r][i] b[r][j]
  EXPECT_EQ(out.values, (std::vector<double>{1, 2, 9, 12, 2, 4, 12, 16}));
}

TEST(Contract, LeavesOutWhatIsNotOnly) {
  auto a = counted("ik", {1, 2}), b = counted("kj", {2, 2});
  b.values[2] = NAN;
  Named<std::uint8_t> only("ik", {1, 2});
  only.values = {1, 0};
  Named<double> out;
  contract("ik,kj->ij", a, b, out, &only);
  EXPECT_EQ(out.values, (std::vector<double>{1, 2}));
}

TEST(Contract, EmptySumIsZeroAndEmptyResultIsEmpty) {
  Named<double> out = counted("ij", {2, 2});
  contract("ik,kj->ij", Named<double>("ik", {2, 0}), Named<double>("kj", {0, 2}), out);
  EXPECT_EQ(out.values, (std::vector<double>{0, 0, 0, 0}));
  contract("ik,kj->ij", Named<double>("ik", {0, 3}), Named<double>("kj", {3, 2}), out);
  EXPECT_TRUE(out.values.empty());
}

TEST(Contract, RefusesWhatDoesNotFit) {
  const auto a = counted("ik", {2, 3}), b = counted("kj", {3, 2}), short_b = counted("kj", {2, 2});
  Named<double> out;
  EXPECT_THROW(contract("ik,kj", a, b, out), std::logic_error);
  EXPECT_THROW(contract("xk,kj->xj", a, b, out), std::logic_error);
  EXPECT_THROW(contract("ik,kj->ji", a, b, out), std::logic_error);
  EXPECT_THROW(contract("ik,kj->ij", a, short_b, out), std::logic_error);
}

}  // namespace
}  // namespace attest
