// SPDX-License-Identifier: Apache-2.0
// Attention weights as pictures: one heat map for each layer and head, in a grid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attest {

struct WeightsPanel {
  std::string title;  ///< "layer 0, head 2"
  std::int64_t queries = 0, keys = 0;
  std::vector<double> weights;  ///< [queries, keys]
};

struct WeightsLabels {
  std::vector<std::string> queries, keys;  ///< one for each, or none: numbers
};

/// An SVG of all panels, `columns` side by side. Dark is much: the scale goes from 0 to the largest
/// weight of all, and stands beside it. Above 128 rows or columns neighbours share a cell, which
/// shows the largest of them.
std::string weights_svg(const std::vector<WeightsPanel>& panels, const WeightsLabels& labels,
                        int columns);

}  // namespace attest
