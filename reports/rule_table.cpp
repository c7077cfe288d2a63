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

/// Of one rule and kind of data, over all dtypes.
RuleScore sum_of(const RuleComparison& comparison, const std::string& rule, const char* data) {
  RuleScore sum;
  for (const RuleScore& score : comparison.scores) {
    if (score.rule != rule || score.data != data) continue;
    sum.honest += score.honest;
    sum.accused += score.accused;
    sum.faulty += score.faulty;
    sum.missed += score.missed;
    sum.told_apart += score.told_apart;
  }
  return sum;
}

/// "2 / 0": honest kernels accused and faults missed.
std::string dtypes_table(const RuleComparison& comparison, const char* data) {
  const std::vector<std::string> dtypes = dtypes_of(comparison);
  std::string text = "| rule |";
  for (const std::string& dtype : dtypes) text += fmt::format(" {} |", dtype);
  text += "\n|---|";
  for (std::size_t i = 0; i < dtypes.size(); ++i) text += "---:|";
  text += '\n';
  for (const std::string& rule : comparison.rules) {
    text += fmt::format("| {} |", markdown_escape(rule));
    for (const std::string& dtype : dtypes)
      for (const RuleScore& score : comparison.scores)
        if (score.rule == rule && score.data == data && score.dtype == dtype)
          text += fmt::format(" {} / {} |", score.accused, score.missed);
    text += '\n';
  }
  return text;
}

/// "chunked (f32 f16), naive (f32)" of chunked.f32 and so on.
std::string by_id(const std::vector<std::string>& kernels) {
  std::vector<std::pair<std::string, std::string>> ids;
  for (const std::string& kernel : kernels) {
    const std::size_t dot = kernel.rfind('.');
    const std::string id = kernel.substr(0, dot);
    const auto known =
        std::find_if(ids.begin(), ids.end(), [&](const auto& entry) { return entry.first == id; });
    if (known == ids.end())
      ids.emplace_back(id, kernel.substr(dot + 1));
    else
      known->second += " " + kernel.substr(dot + 1);
  }
  std::vector<std::string> words;
  for (const auto& [id, dtypes] : ids)
    words.push_back(fmt::format("{} ({})", markdown_code(id), dtypes));
  return join(words, ", ");
}

std::string names_text(const RuleComparison& comparison) {
  std::string text;
  for (const std::string& rule : comparison.rules)
    for (const char* data : {kGaussianData, kAllData}) {
      std::vector<std::string> accused, missed;
      for (const RuleScore& score : comparison.scores) {
        if (score.rule != rule || score.data != data) continue;
        accused.insert(accused.end(), score.accused_kernels.begin(), score.accused_kernels.end());
        missed.insert(missed.end(), score.missed_kernels.begin(), score.missed_kernels.end());
      }
      const auto add = [&](const char* what, const std::vector<std::string>& kernels) {
        if (!kernels.empty())
          text += fmt::format("* {}, {} data, {}: {}\n", markdown_escape(rule), data, what,
                              by_id(kernels));
      };
      add("accuses", accused);
      add("misses", missed);
    }
  return text;
}

}  // namespace

std::string rule_table(const RuleComparison& comparison) {
  std::string text = "| rule |", line = "|---|";
  for (const char* data : {kGaussianData, kAllData}) {
    text += fmt::format(" {} data: honest accused | faults missed | told from their base |", data);
    line += "---:|---:|---:|";
  }
  text += "\n" + line + "\n";
  for (const std::string& rule : comparison.rules) {
    text += fmt::format("| {} |", markdown_escape(rule));
    for (const char* data : {kGaussianData, kAllData}) {
      const RuleScore sum = sum_of(comparison, rule, data);
      text += fmt::format(" {} of {} | {} of {} | {} |", sum.accused, sum.honest, sum.missed,
                          sum.faulty, sum.told_apart);
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
      "(seed {}) that Attest draws and Attest's oracle answers, once with gaussian values and the "
      "default scale, as other harnesses draw them, and once with all of Attest's data families. ",
      comparison.problems, comparison.seed);
  text +=
      "So the rules differ in their tolerance alone. A kernel is accused where one call is. A "
      "fault "
      "is told from its base where it is accused and the honest kernel that it was made of is not. "
      "Faults that need more than one call, or a look at memory, are missed by every rule for "
      "values; the other requirements of a suite are there for them (`attest selftest`).\n\n";
  text += rule_table(comparison) + "\n";
  for (std::size_t r = 0; r < comparison.rules.size(); ++r)
    text += fmt::format("* {}: {}\n", markdown_escape(comparison.rules[r]),
                        markdown_escape(comparison.texts[r]));
  text += "\nBy dtype, honest kernels accused / faults missed, on gaussian data:\n\n";
  text += dtypes_table(comparison, kGaussianData) + "\nand on all data:\n\n";
  text += dtypes_table(comparison, kAllData);
  return text + "\n## Where they go wrong\n\n" + names_text(comparison);
}

}  // namespace attest
