// SPDX-License-Identifier: Apache-2.0
#include "reports/rule_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "reports/text.hpp"

namespace attest {

namespace {

std::vector<std::string> dtypes_of(const RuleComparison& comparison) {
  std::vector<std::string> dtypes;
  for (const RuleScore& score : comparison.scores)
    if (score.honest + score.faulty > 0 &&
        std::find(dtypes.begin(), dtypes.end(), score.dtype) == dtypes.end())
      dtypes.push_back(score.dtype);
  return dtypes;
}

/// Of one rule and dtype, or of one rule over all dtypes ("").
RuleScore sum_of(const RuleComparison& comparison, const std::string& rule,
                 const std::string& dtype) {
  RuleScore sum;
  for (const RuleScore& score : comparison.scores) {
    if (score.rule != rule || (!dtype.empty() && score.dtype != dtype)) continue;
    sum.honest += score.honest;
    sum.accused += score.accused;
    sum.faulty += score.faulty;
    sum.missed += score.missed;
  }
  return sum;
}

std::string names_text(const RuleComparison& comparison) {
  constexpr std::size_t kMost = 12;
  std::string text;
  const auto add = [&](const RuleScore& score, const char* what,
                       const std::vector<std::string>& kernels) {
    if (kernels.empty()) return;
    std::vector<std::string> shown(
        kernels.begin(),
        kernels.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, kernels.size())));
    text += fmt::format(
        "* {} {}, {}: {}{}\n", markdown_escape(score.rule), what, score.dtype,
        markdown_escape(join(shown, ", ")),
        kernels.size() > kMost ? fmt::format(" and {} more", kernels.size() - kMost) : "");
  };
  for (const RuleScore& score : comparison.scores) {
    add(score, "accuses", score.accused_kernels);
    add(score, "misses", score.missed_kernels);
  }
  return text;
}

}  // namespace

std::string rule_table(const RuleComparison& comparison) {
  const std::vector<std::string> dtypes = dtypes_of(comparison);
  std::string text = "| rule | honest kernels accused | faults missed |";
  for (const std::string& dtype : dtypes) text += fmt::format(" {} |", dtype);
  text += "\n|---|---:|---:|";
  for (std::size_t i = 0; i < dtypes.size(); ++i) text += "---:|";
  text += '\n';
  for (const std::string& rule : comparison.rules) {
    const RuleScore all = sum_of(comparison, rule, "");
    text += fmt::format("| {} | {} of {} | {} of {} |", markdown_escape(rule), all.accused,
                        all.honest, all.missed, all.faulty);
    for (const std::string& dtype : dtypes) {
      const RuleScore one = sum_of(comparison, rule, dtype);
      text += fmt::format(" {} / {} |", one.accused, one.missed);
    }
    text += '\n';
  }
  return text;
}

std::string rule_markdown(const RuleComparison& comparison) {
  std::string text = "# Verdict rules compared\n\n";
  text += fmt::format("Made by {} on {} (attest {}, {}).\n\n", markdown_code(comparison.command),
                      comparison.started.substr(0, 10), comparison.tool_version,
                      comparison.commit.substr(0, 12));
  text += fmt::format(
      "Each rule judges the same calls: every honest kernel and every planted fault on {} problems "
      "(seed {}) that Attest draws and Attest's oracle answers, so that the rules differ in their "
      "tolerance alone. A kernel is accused where one call is. In the columns of the dtypes: "
      "honest "
      "kernels accused / faults missed. Faults that need more than one call, or a look at memory, "
      "are missed by every rule for values; the other requirements of a suite are there for "
      "them.\n\n",
      comparison.problems, comparison.seed);
  text += rule_table(comparison) + "\n";
  for (std::size_t r = 0; r < comparison.rules.size(); ++r)
    text += fmt::format("* {}: {}\n", markdown_escape(comparison.rules[r]),
                        markdown_escape(comparison.texts[r]));
  return text + "\n## Where they go wrong\n\n" + names_text(comparison);
}

}  // namespace attest
