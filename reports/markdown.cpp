// SPDX-License-Identifier: Apache-2.0
// The record as Markdown for a pull-request comment: verdict and causes open, all else folded away.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/format.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"
#include "reports/verdict_table.hpp"

namespace attest {
namespace {

constexpr std::size_t kMaxComment = 65'000;  // GitHub refuses more than 65,536 characters
constexpr std::size_t kMaxTable = 12'000;    // characters of one table
constexpr std::size_t kMaxReplay = 8'000;    // a longer one is a file's job
constexpr std::size_t kMaxText = 1'000;      // characters of one foreign text
constexpr std::size_t kMaxNumbers = 30;
constexpr std::size_t kMaxCauses = 3;

std::string text_of(std::string_view text) { return markdown_escape(shorten(text, kMaxText)); }

/// A fenced block that no content can leave.
std::string fenced(const std::vector<std::string>& lines, std::string_view language) {
  std::string content;
  std::size_t longest = 2, run = 0;
  for (const std::string& line : lines) content += plain(line) + '\n';
  for (char c : content) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}{}\n{}{}\n", fence, language, content, fence);
}

std::string folded(std::string_view title, const std::string& body) {
  return fmt::format("<details><summary>{}</summary>\n\n{}\n</details>\n\n", title, body);
}

/// In a table a bar ends the cell even inside a code span, unless it is escaped.
std::string table_code(std::string_view text) {
  std::string code = markdown_code(text);
  for (std::size_t i = 0; (i = code.find('|', i)) != code.npos; i += 2) code.insert(i, 1, '\\');
  return code;
}

std::string cause_text(const CauseView& view, std::size_t number) {
  const Failure& failure = *view.smallest;
  std::string text = fmt::format("**{}. {}** ({})\n", number, text_of(cause_sentence(view)),
                                 text_of(cause_extent(*view.cause)));
  const auto item = [&text](const std::string& line) { text += "- " + text_of(line) + '\n'; };
  if (!failure.detail.empty()) item(failure.detail);
  if (failure.worst) item(worst_sentence(failure));
  const std::string where = where_sentence(failure);
  if (!where.empty()) item(where);
  if (!view.cause->diagnosis.empty()) item("looks like: " + view.cause->diagnosis);
  item(fmt::format("caught by {}; {}{}", join(view.cause->caught_by, ", "),
                   reruns_sentence(failure),
                   failure.fully_shrunk ? "" : "; not fully shrunk, the budget was spent"));
  text += '\n';
  if (!failure.numbers.empty() && failure.numbers.size() <= kMaxNumbers)
    text += fenced(failure.numbers, "") + '\n';
  if (failure.replay.size() > kMaxReplay)
    return text + "The replay line is too long for a comment; the JSON report has it.\n\n";
  return text + fenced({failure.replay}, "sh") + '\n';
}

/// Rows until the budget is spent, then a line that says how many are missing.
class Table {
 public:
  explicit Table(std::string head) : text_(std::move(head)) {}
  void add(const std::string& row) {
    if (text_.size() + row.size() > kMaxTable)
      ++left_out_;
    else
      text_ += row;
  }
  std::string text() const {
    return left_out_ == 0 ? text_
                          : fmt::format("{}\n{} left out; the JSON report has them all.\n", text_,
                                        counted(left_out_, "row"));
  }

 private:
  std::string text_;
  std::int64_t left_out_ = 0;
};

std::string failures_text(const Record& record) {
  Table table(
      "| cause | requirement | dtype | verdict | smallest case |\n|---:|---|---|---|---|\n");
  for (const Failure& failure : record.failures)
    table.add(fmt::format("| {} | {} | {} | {} {}{} | {} |\n", failure.cause,
                          text_of(failure.requirement), text_of(failure.dtype),
                          name(failure.verdict),
                          failure.reason == Reason::none ? "" : name(failure.reason),
                          failure.expected ? " (expected)" : "", table_code(failure.case_line)));
  return table.text();
}

std::string requirements_text(const Record& record) {
  Table table("| requirement | what is owed | cases |\n|---|---|---|\n");
  for (const RequirementResult& requirement : record.requirements)
    table.add(fmt::format("| {}{} | {} | {} |\n", text_of(requirement.id),
                          requirement.level == "advisory" ? " (advisory)" : "",
                          text_of(requirement.sentence),
                          requirement.skipped.empty() ? verdict_counts(requirement.counts)
                                                      : text_of(requirement.skipped)));
  return table.text();
}

std::string matrix_text(const Record& record) {
  std::string head = "| feature |", rule = "\n|---|";
  for (const std::string& dtype : dtypes_of(record)) {
    head += ' ' + text_of(dtype) + " |";
    rule += "---:|";
  }
  Table table(head + rule + '\n');
  for (const MatrixRow& row : matrix_rows(record)) {
    std::string line = "| " + text_of(row.feature) + " |";
    for (const MatrixCell& cell : row.cells)
      line += cell.failed > 0
                  ? fmt::format(" **{}** of {} |", grouped(cell.failed), grouped(cell.cases))
                  : fmt::format(" {} |", grouped(cell.cases));
    table.add(line + '\n');
  }
  return table.text();
}

std::string ratios_text(const Record& record) {
  Table table(
      "| output | dtype | cases | 10 % | median | 90 % | max "
      "|\n|---|---|---:|---:|---:|---:|---:|\n");
  for (const Ratios& ratios : record.ratios)
    table.add(fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", text_of(ratios.output),
                          text_of(ratios.dtype), grouped(ratios.cases), ratio_text(ratios.q10),
                          ratio_text(ratios.q50), ratio_text(ratios.q90), ratio_text(ratios.max)));
  return table.text();
}

std::string facts_text(const Record& record) {
  std::string text;
  const auto item = [&text](std::string_view label, const std::string& line) {
    if (!line.empty()) text += fmt::format("- {}: {}\n", label, text_of(line));
  };
  item("verdicts", verdict_counts(record.counts));
  item("scope", scope_sentence(record));
  item("pairs", pairs_sentence(record.pairs));
  item("not tested", join(record.scope.not_tested, "; "));
  item("audit of the oracle", audit_sentence(record.audit));
  for (const std::string& sentence : memory_sentences(record)) item("memory", sentence);
  for (const std::string& sentence : cache_sentences(record)) item("KV cache", sentence);
  for (const std::string& sentence : expectation_sentences(record)) item("expectations", sentence);
  item("baseline", baseline_sentence(record));
  for (const std::string& sentence : demand_sentences(record)) item("required", sentence);
  for (const std::string& note : record.notes) item("note", note);
  return text + '\n';
}

std::string head_text(const Record& record) {
  return fmt::format("### Attest: {}\n\n{}: {} ({})\n\n", verdict_word(record.verdict),
                     text_of(subject_name(record)), text_of(verdict_sentence(record)),
                     text_of(run_sentence(record)));
}

std::string causes_text(const Record& record) {
  std::string text;
  const std::vector<CauseView> causes = causes_by_urgency(record);
  for (std::size_t i = 0; i < std::min(causes.size(), kMaxCauses); ++i)
    text += cause_text(causes[i], i + 1);
  if (causes.size() > kMaxCauses)
    text +=
        fmt::format("{} in the JSON report.\n\n",
                    counted(static_cast<std::int64_t>(causes.size() - kMaxCauses), "more cause"));
  return text;
}

std::string tables_text(const Record& record) {
  std::string text;
  if (!record.failures.empty())
    text += folded(counted(static_cast<std::int64_t>(record.failures.size()), "failure") +
                       ", smallest case each",
                   failures_text(record));
  if (!record.requirements.empty()) text += folded("Requirements", requirements_text(record));
  if (!record.matrix.empty()) text += folded("Cases by feature and dtype", matrix_text(record));
  if (!record.ratios.empty())
    text += folded("Error over tolerance, worst element of each case", ratios_text(record));
  return text;
}

std::string write(const Record& record) {
  const std::string end = fmt::format("<sub>attest {}, {}</sub>\n", text_of(record.tool_version),
                                      markdown_code(shorten(record.command, kMaxText)));
  std::string text = head_text(record);
  // A comment that is too long is no comment: what does not fit is left out part by part.
  bool cut = false;
  for (const std::string& part : {causes_text(record), facts_text(record), tables_text(record)}) {
    if (text.size() + part.size() + end.size() <= kMaxComment)
      text += part;
    else
      cut = true;
  }
  if (cut) text += "Parts of this report are too long for a comment; the JSON report has them.\n\n";
  return text + end;
}

ATTEST_REPORT_FORMAT(markdown, {.name = "markdown",
                                .extension = "md",
                                .purpose = "a comment for a pull request",
                                .write = write});

}  // namespace
}  // namespace attest
