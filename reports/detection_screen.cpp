// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "reports/detection.hpp"
#include "reports/detection_kinds.hpp"
#include "reports/text.hpp"

namespace attest {

namespace {

std::string kinds_text(const DetectionReport& report) {
  const std::vector<KindRow> rows = kind_rows(fault_rows(report));
  if (rows.empty()) return "";
  std::size_t width = 4;
  for (const KindRow& row : rows) width = std::max(width, columns(row.kind));
  std::string text = fmt::format("{:<{}}  faults  caught\n", "kind", width);
  for (const KindRow& row : rows)
    text += fmt::format("{:<{}}  {:>6}  {:>6}\n", plain(row.kind), width, row.faults, row.caught);
  return text + '\n';
}

std::string figures_text(const DetectionReport& report) {
  const DetectionTotals t = detection_totals(report);
  std::string text;
  if (t.fault_kernels_caught > 0)
    text += fmt::format("first catch after {} (median), {} (slowest), on one core\n",
                        duration(t.median_seconds), duration(t.slowest_seconds));
  if (t.caught > 0)
    text += fmt::format(
        "{} of {} caught by a requirement other than agreement with the oracle ({:.0f} %)\n",
        t.caught_beyond_oracle, counted(t.caught, "fault"),
        100.0 * static_cast<double>(t.caught_beyond_oracle) / static_cast<double>(t.caught));
  if (t.minimal_cases > 0)
    text += fmt::format("smallest cases: {:g} pairs of query and key (median); {} of {} replay\n",
                        t.median_pairs, t.minimal_failing_again, t.minimal_cases);
  if (t.out_of_scope_kernels > 0)
    text += fmt::format("{} out of scope\n", counted(t.out_of_scope_kernels, "faulty kernel"));
  text += fmt::format("by kernel: caught {} of {} faulty kernels, accused {} of {} honest ones\n",
                      t.fault_kernels_caught, t.fault_kernels, t.honest_kernels_accused,
                      t.honest_kernels);
  return text;
}

}  // namespace

std::string detection_trouble(const Detection& kernel) {
  const std::string who = kernel.dtype == "all" ? kernel.id : kernel.id + "." + kernel.dtype;
  std::string line;
  if (kernel.outcome == Outcome::escaped)
    line = fmt::format("escaped: {} ({}); {}", who, kernel.sentence, kernel.shown_by);
  // Where its base fails the same case, that is the thing to say.
  if (kernel.outcome == Outcome::unreachable && kernel.accusations.empty())
    line = fmt::format("unreachable: {} ({}): no case shows a difference from {}", who,
                       kernel.sentence, kernel.base);
  if (!line.empty() && !kernel.flaky.empty())
    line += "; failed once and not again: " + join(kernel.flaky, ", ");
  std::string text = line.empty() ? "" : plain(line) + '\n';
  for (const std::string& accusation : kernel.accusations)
    text += "accused: " + plain(accusation) + '\n';
  return text;
}

std::string detection_screen(const DetectionReport& report) {
  std::string text;
  for (const Detection& kernel : report.kernels) text += detection_trouble(kernel);
  if (!text.empty()) text += '\n';
  text += kinds_text(report) + figures_text(report);
  if (!report.incomplete.empty()) text += "incomplete: " + plain(report.incomplete) + '\n';
  return text + detection_score(report) + '\n';
}

}  // namespace attest
