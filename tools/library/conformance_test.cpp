// SPDX-License-Identifier: Apache-2.0
#include "attest/conformance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"

namespace attest {
namespace {

/// Plain attention, wrong by 1 where 257 queries meet 2 keys: a point of the grid of SIZE-GRID, and
/// longer than any random problem.
class WrongAtOnePoint : public Kernel {
 public:
  void forward(const attest_attention& p, const Context&) override {
    accept_only(p, {DType::f32}, {});
    const TensorView<const float> q(p.q), k(p.k), v(p.v);
    const TensorView<float> o(p.o);
    const float slip = q.extent(2) == 257 && k.extent(2) == 2 ? 1 : 0;
    for_each_row(p, [&](auto b, auto h, auto i) {
      std::vector<double> weights;
      double sum = 0, max = -std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < k.extent(2); ++j) {
        double z = 0;
        for (std::int64_t c = 0; c < q.extent(3); ++c)
          z += static_cast<double>(q(b, h, i, c)) * static_cast<double>(k(b, h, j, c));
        weights.push_back(z * p.scale);
        max = std::fmax(max, weights.back());
      }
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (std::int64_t c = 0; c < v.extent(3); ++c) {
        double mean = 0;
        for (std::int64_t j = 0; j < k.extent(2); ++j)
          mean += weights[static_cast<std::size_t>(j)] / sum * static_cast<double>(v(b, h, j, c));
        o(b, h, i, c) = static_cast<float>(mean) + slip;
      }
    });
  }
};

// A case has the same problems here as in `attest check`: those of the requirement's own grid.
TEST(Conformance, WalksTheGridOfARequirementThatHasOne) {
  static const attest_plugin table =
      detail::table<WrongAtOnePoint>("wrong_at_one_point", "1", "dtype=f32 base=full layout=bhld");
  const ConformanceResult result =
      run_conformance_case(&table, {"SIZE-GRID", "f32"}, {.problems = 800});
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.message.find("lq=257 lk=2"), std::string::npos) << result.message;
}

}  // namespace
}  // namespace attest
