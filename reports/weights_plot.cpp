// SPDX-License-Identifier: Apache-2.0
#include "reports/weights_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::int64_t kMostCells = 128;  // in a row or column
constexpr int kMostLabels = 32;           // more would overlap
constexpr double kPanel = 320;            // pixels of a map
constexpr std::size_t kLabelColumns = 12;
constexpr const char* kGround = "#ffffff";

/// A map that fits: [rows, columns] cells, each the largest of `per_row` x `per_column` weights.
struct Cells {
  std::int64_t rows = 0, columns = 0, per_row = 1, per_column = 1;
  std::vector<double> values;
};

Cells cells_of(const WeightsPanel& panel) {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  Cells cells;
  cells.per_row = std::max<std::int64_t>(1, ceil_div(panel.queries, kMostCells));
  cells.per_column = std::max<std::int64_t>(1, ceil_div(panel.keys, kMostCells));
  cells.rows = ceil_div(panel.queries, cells.per_row);
  cells.columns = ceil_div(panel.keys, cells.per_column);
  cells.values.assign(static_cast<std::size_t>(cells.rows * cells.columns), 0);
  for (std::int64_t i = 0; i < panel.queries; ++i)
    for (std::int64_t j = 0; j < panel.keys; ++j) {
      const auto at =
          static_cast<std::size_t>(i / cells.per_row * cells.columns + j / cells.per_column);
      const double weight = panel.weights[static_cast<std::size_t>(i * panel.keys + j)];
      if (!(weight <= cells.values[at])) cells.values[at] = weight;  // a NaN shows
    }
  return cells;
}

/// From white to dark blue, equally far apart for the eye; a NaN is orange.
std::string colour(double share) {
  if (!std::isfinite(share)) return "#d55e00";
  constexpr double kFrom[] = {255, 255, 255}, kMiddle[] = {107, 174, 214}, kTo[] = {8, 48, 107};
  int rgb[3];
  const double x = std::clamp(share, 0.0, 1.0);
  for (int c = 0; c < 3; ++c) {
    const double value = x < 0.5 ? kFrom[c] + (kMiddle[c] - kFrom[c]) * 2 * x
                                 : kMiddle[c] + (kTo[c] - kMiddle[c]) * (2 * x - 1);
    rgb[c] = static_cast<int>(std::lround(value));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

std::string label_of(const std::vector<std::string>& labels, std::int64_t i) {
  if (static_cast<std::size_t>(i) >= labels.size()) return std::to_string(i);
  return xml_text(shorten(plain(labels[static_cast<std::size_t>(i)]), kLabelColumns));
}

/// Which of n cells have a label: all, or every second, fourth, ...
std::int64_t label_step(std::int64_t n) {
  std::int64_t step = 1;
  while (n / step > kMostLabels) step *= 2;
  return step;
}

std::string panel_svg(const WeightsPanel& panel, const WeightsLabels& labels, double largest,
                      double x, double y) {
  const Cells cells = cells_of(panel);
  const double width = kPanel / static_cast<double>(std::max<std::int64_t>(cells.columns, 1)),
               height = kPanel / static_cast<double>(std::max<std::int64_t>(cells.rows, 1));
  std::string text = fmt::format(
      "<g transform=\"translate({:.1f} {:.1f})\">\n<text x=\"{:.1f}\" y=\"-8\" "
      "text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
      x, y, kPanel / 2, xml_text(plain(panel.title)));
  for (std::int64_t i = 0; i < cells.rows; ++i)
    for (std::int64_t j = 0; j < cells.columns; ++j) {
      const double value = cells.values[static_cast<std::size_t>(i * cells.columns + j)];
      const std::string fill = colour(largest > 0 ? value / largest : value);
      if (fill == kGround) continue;
      text += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
          static_cast<double>(j) * width, static_cast<double>(i) * height, width, height, fill);
    }
  text += fmt::format(
      "<rect width=\"{0:.1f}\" height=\"{0:.1f}\" fill=\"none\" stroke=\"#888\"/>\n", kPanel);
  const std::int64_t row_step = label_step(cells.rows), column_step = label_step(cells.columns);
  for (std::int64_t i = 0; i < cells.rows; i += row_step)
    text += fmt::format("<text x=\"-5\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                        (static_cast<double>(i) + 0.5) * height + 3.5,
                        label_of(labels.queries, i * cells.per_row));
  for (std::int64_t j = 0; j < cells.columns; j += column_step) {
    const double at = (static_cast<double>(j) + 0.5) * width + 3.5;
    text += fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"end\">{}</text>\n",
        at, kPanel + 5, label_of(labels.keys, j * cells.per_column));
  }
  return text + "</g>\n";
}

/// The scale of colours, 0 to `largest`.
std::string scale_svg(double largest, double x, double y) {
  std::string text = fmt::format("<g transform=\"translate({:.1f} {:.1f})\">\n", x, y);
  constexpr int kSteps = 32;
  const double step = kPanel / kSteps;
  for (int n = 0; n < kSteps; ++n)
    text += fmt::format("<rect x=\"0\" y=\"{:.1f}\" width=\"14\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                        kPanel - (n + 1) * step, step + 0.5, colour((n + 0.5) / kSteps));
  text += fmt::format(
      "<rect width=\"14\" height=\"{0:.1f}\" fill=\"none\" stroke=\"#888\"/>\n"
      "<text x=\"18\" y=\"{0:.1f}\">0</text>\n<text x=\"18\" y=\"9\">{1:.3g}</text>\n</g>\n",
      kPanel, largest);
  return text;
}

}  // namespace

std::string weights_svg(const std::vector<WeightsPanel>& panels, const WeightsLabels& labels,
                        int columns) {
  double largest = 0;
  for (const WeightsPanel& panel : panels)
    for (const double weight : panel.weights)
      if (weight > largest) largest = weight;
  const double left = 90, top = 34, right = 70, bottom = 90;  // for labels, title and scale
  const auto count = static_cast<int>(panels.size());
  columns = std::clamp(columns, 1, std::max(count, 1));
  const int rows = (count + columns - 1) / columns;
  const double step_x = kPanel + left, step_y = kPanel + top + bottom;
  const double width = columns * step_x + right, height = rows * step_y;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"attention weights\" "
      "font-family=\"sans-serif\" font-size=\"10\" shape-rendering=\"crispEdges\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
      width, height);
  for (int n = 0; n < count; ++n) {
    const int column = n % columns, row = n / columns;
    text += panel_svg(panels[static_cast<std::size_t>(n)], labels, largest, left + column * step_x,
                      top + row * step_y);
  }
  return text + scale_svg(largest, columns * step_x + 20, top) + "</svg>\n";
}

}  // namespace attest
