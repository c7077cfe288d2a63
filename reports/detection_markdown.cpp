// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "reports/detection.hpp"
#include "reports/detection_kinds.hpp"
#include "reports/text.hpp"

namespace attest {

namespace {

/// In a table a bar ends the cell even inside a code span, unless it is escaped.
std::string cell_code(std::string_view text) {
  std::string code = markdown_code(text);
  for (std::size_t i = 0; (i = code.find('|', i)) != code.npos; i += 2) code.insert(i, 1, '\\');
  return code;
}

std::string head_text(const DetectionReport& report) {
  const DetectionTotals t = detection_totals(report);
  std::string text = "# Detection score\n\n";
  text +=
      fmt::format("Made by {} on {} (attest {}, {}).\n\n", markdown_code(report.command),
                  report.started.substr(0, 10), report.tool_version, report.commit.substr(0, 12));
  text += fmt::format("**{}**\n\n", detection_score(report));
  if (!report.incomplete.empty())
    text += fmt::format("Incomplete: {}.\n\n", markdown_escape(report.incomplete));
  if (!report.within.empty())
    text +=
        fmt::format("In the scope {}; {} of other scopes left out.\n\n",
                    markdown_code(report.within), counted(t.out_of_scope_kernels, "faulty kernel"));
  text += fmt::format(
      "Each fault is one mistake in an otherwise honest kernel. It counts as caught where a "
      "requirement of suite `{}` (seed {}) fails, and fails again in a fresh process, in every "
      "dtype in which the mistake can show; that its honest base passes the same case is checked. "
      "Honest kernels, in many styles, must pass suite `{}`.\n\n",
      report.suite, report.seed, report.honest_suite);
  text += fmt::format("* by kernel: {} of {} faulty kernels caught, {} of {} honest ones accused\n",
                      t.fault_kernels_caught, t.fault_kernels, t.honest_kernels_accused,
                      t.honest_kernels);
  text += fmt::format("* first catch: median {}, slowest {}, on one core\n",
                      duration(t.median_seconds), duration(t.slowest_seconds));
  text += fmt::format("* {} of {} caught by a requirement other than agreement with the oracle\n",
                      t.caught_beyond_oracle, counted(t.caught, "fault"));
  text += fmt::format(
      "* smallest cases: median {:g} pairs of query and key; {} of {} fail again when replayed\n",
      t.median_pairs, t.minimal_failing_again, t.minimal_cases);
  return text + fmt::format("* {} for all of it\n\n", duration(report.wall_seconds));
}

std::string kinds_text(const std::vector<FaultRow>& faults) {
  std::string text = "## Kinds\n\n| kind | faults | caught |\n|---|---:|---:|\n";
  for (const KindRow& row : kind_rows(faults))
    text += fmt::format("| {} | {} | {} |\n", markdown_escape(row.kind), row.faults, row.caught);
  return text + '\n';
}

std::string troubles_text(const DetectionReport& report) {
  std::string text;
  for (const Detection& kernel : report.kernels) {
    const std::string lines = detection_trouble(kernel);
    for (std::size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != lines.npos;
         begin = end + 1)
      text += "* " + markdown_escape(lines.substr(begin, end - begin)) + '\n';
  }
  return text.empty() ? "" : "## Escapes and accusations\n\n" + text + '\n';
}

/// A column for each requirement that caught anything.
std::string matrix_text(const std::vector<FaultRow>& faults, const DetectionReport& report) {
  std::vector<std::string> used;
  for (const std::string& id : report.requirements)
    if (std::any_of(faults.begin(), faults.end(),
                    [&](const FaultRow& fault) { return fault.caught_by(id) > 0; }))
      used.push_back(id);
  std::string text =
      "## Matrix\n\n● caught in every dtype of the fault, ○ in some of them. A kernel is followed "
      "for a while after its first catch, so that a requirement without a mark may only be "
      "slower.\n\n| fault |";
  for (const std::string& id : used) text += fmt::format(" {} |", markdown_escape(id));
  text += "\n|---|";
  for (std::size_t i = 0; i < used.size(); ++i) text += ":-:|";
  text += '\n';
  for (const FaultRow& fault : faults) {
    text += fmt::format("| {} |", cell_code(fault.id));
    for (const std::string& id : used) {
      const std::size_t dtypes = fault.caught_by(id);
      text += dtypes == 0 ? "  |" : dtypes == fault.kernels.size() ? " ● |" : " ○ |";
    }
    text += '\n';
  }
  return text + "\nRequirements without a catch: " + [&] {
    std::vector<std::string> without;
    for (const std::string& id : report.requirements)
      if (std::find(used.begin(), used.end(), id) == used.end()) without.push_back(id);
    return without.empty() ? std::string("none") : markdown_escape(join(without, ", "));
  }() + ".\n\n";
}

std::string faults_text(const std::vector<FaultRow>& faults) {
  std::string text =
      "## Faults\n\n| fault | mistake | seen in | dtypes | first catch | smallest case |\n"
      "|---|---|---|---|---:|---|\n";
  for (const FaultRow& fault : faults) {
    const Detection& kernel = *fault.kernels.front();
    const MinimalCase* minimal = fault.minimal();
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} |\n", cell_code(fault.id), markdown_escape(kernel.sentence),
        markdown_escape(kernel.reference), fault.dtypes(),
        fault.caught() ? duration(fault.slowest_seconds()) : std::string("not in all"),
        minimal ? markdown_escape(minimal->requirement) + " " + cell_code(minimal->case_line)
                : std::string());
  }
  return text + '\n';
}

std::string honest_text(const DetectionReport& report) {
  std::string text =
      "## Honest kernels\n\n| kernel | style | dtype | cases | accused |\n"
      "|---|---|---|---:|---|\n";
  for (const Detection& kernel : report.kernels)
    if (kernel.honest)
      text += fmt::format("| {} | {} | {} | {} | {} |\n", cell_code(kernel.id),
                          markdown_escape(kernel.sentence), kernel.dtype, grouped(kernel.cases),
                          kernel.accusations.empty() ? "no" : "yes");
  return text;
}

}  // namespace

std::string detection_markdown(const DetectionReport& report) {
  const std::vector<FaultRow> faults = fault_rows(report);
  return head_text(report) + troubles_text(report) + kinds_text(faults) +
         matrix_text(faults, report) + faults_text(faults) + honest_text(report);
}

}  // namespace attest
