// SPDX-License-Identifier: Apache-2.0
#include "reports/weights_plot.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reports/atomic_file.hpp"
#include "reports/python_test.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

std::vector<WeightsPanel> two_panels() {
  return {{"layer 0, head 0", 2, 2, {1, 0, 0.5, 0.5}},
          {"layer 0, head <1>", 2, 2, {1, 0, 0.25, 0.75}}};
}

TEST(WeightsPlot, HasATitleAndACellForEachWeight) {
  const std::string svg = weights_svg(two_panels(), {{"the", "<b>"}, {"the", "<b>"}}, 2);
  EXPECT_EQ(count(svg, ">layer 0, head 0<"), 1u);
  EXPECT_EQ(count(svg, ">layer 0, head &lt;1&gt;<"), 1u);
  EXPECT_EQ(count(svg, ">the<"), 4u);
  EXPECT_EQ(count(svg, ">&lt;b&gt;<"), 4u);
  // 1 is the largest: darkest; 0 has no cell.
  EXPECT_EQ(count(svg, "height=\"160.00\" fill=\"#08306b\""), 2u);
  EXPECT_EQ(count(svg, "height=\"160.00\" fill=\"#6baed6\""), 2u);
  EXPECT_EQ(count(svg, "height=\"160.00\""), 6u);
}

TEST(WeightsPlot, IsWellFormedWhateverItIsGiven) {
  const std::string path = testing::TempDir() + "attest-weights.svg";
  std::vector<WeightsPanel> panels = two_panels();
  panels.push_back({"\x1b[2J", 1, 3, {std::nan(""), HUGE_VAL, -1}});
  panels.push_back({"none", 0, 0, {}});
  ASSERT_EQ(write_file(path, weights_svg(panels, {{"\xff"}, {}}, 3)), std::nullopt);
  const Output output = python("-c \"import xml.dom.minidom as m; m.parse('" + path + "')\"");
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

TEST(WeightsPlot, OfManyTokensShowsTheLargestOfNeighbours) {
  WeightsPanel panel{"long", 1000, 1000, std::vector<double>(1'000'000)};
  panel.weights[999 * 1000 + 500] = 1;  // a needle
  const std::string svg = weights_svg({panel}, {}, 1);
  EXPECT_LT(svg.size(), 20'000u);
  EXPECT_EQ(count(svg, "fill=\"#08306b\""), 1u);
}

}  // namespace
}  // namespace attest
