// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "reports/format.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kMaxCauses = 3;
constexpr std::size_t kLabel = 10;    // columns of "verdicts  "
constexpr std::size_t kIndent = 4;    // columns of "1.  "
constexpr std::size_t kFeature = 20;  // the longest name is alibi_inside_softcap

/// How much a failing run may say. Long replay lines leave less room for all else.
struct Detail {
  std::size_t matrix_rows;  ///< features shown
  std::size_t cause_lines;  ///< of one sentence about a cause
  std::size_t fact_lines;   ///< of one fact about the run
  bool oracle;              ///< ratios and a clean audit
};
constexpr Detail kDetails[] = {
    {4, 2, 2, true}, {4, 2, 1, true}, {2, 2, 1, true}, {2, 1, 1, true}, {1, 1, 1, false}};

using Lines = std::vector<std::string>;

std::string paint(std::string_view text, std::string_view code, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string_view verdict_colour(SuiteVerdict verdict) {
  return verdict == SuiteVerdict::conformant       ? "1;32"
         : verdict == SuiteVerdict::not_conformant ? "1;31"
                                                   : "1;33";
}

/// Wrapped, the first line after `label`, the others below it; what goes beyond `max_lines` is cut.
Lines labelled(std::string_view label, std::string_view text, std::size_t width,
               std::size_t max_lines, std::size_t indent = kLabel) {
  const std::size_t room = width - indent;
  Lines parts = wrap(text, room);
  for (std::size_t i = max_lines; i < parts.size(); ++i) parts[max_lines - 1] += ' ' + parts[i];
  parts.resize(std::min(parts.size(), max_lines));
  Lines lines;
  for (const std::string& part : parts)
    lines.push_back(
        fmt::format("{:<{}}{}", lines.empty() ? label : "", indent, shorten(part, room)));
  return lines;
}

void append(Lines& lines, Lines more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

/// Rows on a screen that wraps long lines itself.
std::size_t rows(const Lines& lines, std::size_t width) {
  return std::accumulate(lines.begin(), lines.end(), std::size_t{0},
                         [width](std::size_t sum, const std::string& line) {
                           return sum +
                                  std::max<std::size_t>(1, (columns(line) + width - 1) / width);
                         });
}

/// "a b c", or "a b c +2": the first three.
std::string first_three(const std::vector<std::string>& words) {
  const std::size_t shown = std::min<std::size_t>(words.size(), 3);
  std::string text =
      plain(join({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shown)}, " "));
  return shown < words.size() ? fmt::format("{} +{}", text, words.size() - shown) : text;
}

/// What a cause always gets, without its numbers and its replay line.
Lines cause_head(const CauseView& view, std::size_t number, std::size_t width,
                 std::size_t max_lines) {
  const std::string title = fmt::format("{} ({})", cause_sentence(view), cause_extent(*view.cause));
  Lines lines = labelled(fmt::format("{}.", number), title, width, max_lines, kIndent);
  const auto add = [&](const std::string& text) {
    append(lines, labelled("", text, width, max_lines, kIndent));
  };
  const Failure& failure = *view.smallest;
  const std::string worst = worst_sentence(failure);
  const std::string where = where_sentence(failure);
  const bool said = view.cause->sentence.find(failure.detail) != std::string::npos;
  if (worst.empty() && !said) add(plain(failure.detail));
  if (!worst.empty() || !where.empty())
    add(worst + (worst.empty() || where.empty() ? "" : "; ") + where);
  if (!view.cause->diagnosis.empty()) add("looks like: " + plain(view.cause->diagnosis));
  add(fmt::format("caught by {}; {}{}", first_three(view.cause->caught_by),
                  reruns_sentence(failure),
                  failure.fully_shrunk ? "" : "; not fully shrunk, the budget was spent"));
  return lines;
}

Lines numbers_of(const Failure& failure, std::size_t width) {
  Lines lines;
  for (const std::string& line : failure.numbers)
    lines.push_back(std::string(2 * kIndent, ' ') + shorten(plain(line), width - 2 * kIndent));
  return lines;
}

std::string replay_line(const Failure& failure) {
  return std::string(kIndent, ' ') + plain(failure.replay);
}

std::string cell_text(const MatrixCell& cell, bool with_failures) {
  if (cell.failed > 0)
    return fmt::format("{}/{}", grouped_short(cell.failed), grouped_short(cell.cases));
  if (cell.cases + cell.unsupported == 0) return "-";
  return with_failures ? "0/" + grouped_short(cell.cases) : grouped_short(cell.cases);
}

std::string matrix_line(std::string_view first, const std::vector<std::string>& cells,
                        std::size_t cell_width) {
  std::string line = fmt::format("{:<{}}", shorten(first, kFeature), kFeature);
  for (const std::string& cell : cells) line += fmt::format("{:>{}}", cell, cell_width);
  return line;
}

Lines matrix_block(const Record& record, const std::vector<MatrixRow>& shown, bool with_failures) {
  const std::size_t cell_width = with_failures ? 15 : 7;
  Lines lines;
  lines.push_back(
      matrix_line(with_failures ? "failing/cases" : "cases", dtypes_of(record), cell_width));
  for (const MatrixRow& row : shown) {
    std::vector<std::string> cells;
    for (const MatrixCell& cell : row.cells) cells.push_back(cell_text(cell, with_failures));
    lines.push_back(matrix_line(row.feature, cells, cell_width));
  }
  return lines;
}

/// Where something fails: the features with the largest share of failures. A common feature fails
/// with every bug; a high share points at the one that matters. A share of few cases says little,
/// so twenty more that pass are assumed.
Lines failing_matrix(const Record& record, std::vector<MatrixRow> all, std::size_t max_rows) {
  std::erase_if(all, [](const MatrixRow& row) { return row.cases + row.unsupported == 0; });
  const auto clean =
      std::count_if(all.begin(), all.end(), [](const MatrixRow& row) { return row.failed == 0; });
  std::erase_if(all, [](const MatrixRow& row) { return row.failed == 0; });
  if (all.empty()) return {};
  const auto share = [](const MatrixRow& row) {
    return static_cast<double>(row.failed) / static_cast<double>(row.cases + 20);
  };
  std::stable_sort(all.begin(), all.end(), [&share](const MatrixRow& a, const MatrixRow& b) {
    return share(a) > share(b);
  });
  const std::size_t hidden = all.size() > max_rows ? all.size() - max_rows : 0;
  all.resize(all.size() - hidden);
  Lines lines = matrix_block(record, all, true);
  std::vector<std::string> rest;
  if (hidden > 0)
    rest.push_back(fmt::format("{} with a smaller share",
                               counted(static_cast<std::int64_t>(hidden), "more feature")));
  if (clean > 0) rest.push_back(fmt::format("{} without a failure", counted(clean, "feature")));
  if (!rest.empty()) lines.push_back(join(rest, "; "));
  return lines;
}

/// Where nothing fails: all features, several columns of them side by side.
Lines full_matrix(const Record& record, std::vector<MatrixRow> all, std::size_t width) {
  std::erase_if(all, [](const MatrixRow& row) { return row.cases + row.unsupported == 0; });
  if (all.empty()) return {};
  constexpr std::string_view kGap = "    ";
  const std::size_t block = columns(matrix_block(record, {}, false).front()) + kGap.size();
  const std::size_t blocks = std::max<std::size_t>(1, (width + kGap.size()) / block);
  const std::size_t height = (all.size() + blocks - 1) / blocks;
  Lines lines(height + 1);
  for (std::size_t start = 0; start < all.size(); start += height) {
    const std::size_t end = std::min(start + height, all.size());
    const Lines part = matrix_block(record,
                                    {all.begin() + static_cast<std::ptrdiff_t>(start),
                                     all.begin() + static_cast<std::ptrdiff_t>(end)},
                                    false);
    for (std::size_t i = 0; i < part.size(); ++i)
      lines[i] += (start == 0 ? "" : std::string(kGap)) + part[i];
  }
  return lines;
}

/// One line for each output: median and maximum for each dtype.
Lines ratio_lines(const Record& record, std::size_t width) {
  std::vector<std::string> outputs, texts;
  for (const Ratios& ratios : record.ratios) {
    if (ratios.cases == 0) continue;
    const auto found = std::find(outputs.begin(), outputs.end(), ratios.output);
    const auto position = static_cast<std::size_t>(found - outputs.begin());
    if (found == outputs.end()) {
      outputs.push_back(ratios.output);
      texts.push_back(fmt::format("{:<4}", plain(ratios.output)));
    }
    texts[position] += fmt::format("  {} {}/{}", plain(ratios.dtype), ratio_text(ratios.q50),
                                   ratio_text(ratios.max));
  }
  Lines lines;
  for (std::size_t i = 0; i < texts.size(); ++i)
    lines.push_back(
        fmt::format("{:<{}}{}", i == 0 ? "err/T" : "", kLabel, shorten(texts[i], width - kLabel)));
  if (!lines.empty() && columns(lines.front()) + 14 <= width) lines.front() += "  (median/max)";
  return lines;
}

Lines next_lines(const Record& record, std::size_t width) {
  Lines lines;
  for (const NextStep& step : next_steps(record)) {
    std::string line = fmt::format("{:<{}}{}", lines.empty() ? "next" : "", kLabel, step.command);
    const std::string purpose = "    # " + step.purpose;
    if (columns(line) + columns(purpose) <= width) line += purpose;
    lines.push_back(std::move(line));
  }
  return lines;
}

Lines facts(const Record& record, std::size_t width, const Detail& detail) {
  const auto fact = [&](std::string_view label, const std::string& text) {
    return labelled(label, text, width, detail.fact_lines);
  };
  Lines lines = fact("verdicts", verdict_counts(record.counts));
  append(lines, fact("scope", scope_sentence(record)));
  append(lines, fact("untested", plain(join(record.scope.not_tested, "; "))));
  if (detail.oracle) append(lines, ratio_lines(record, width));
  if (detail.oracle || record.audit.outside > 0)
    append(lines, fact("audit", audit_sentence(record.audit)));
  if (record.causes.empty()) {
    append(lines, fact("memory", join(memory_sentences(record), "; ")));
    append(lines, fact("kv cache", join(cache_sentences(record), "; ")));
  }
  append(lines, fact("expected", join(expectation_sentences(record), "; ")));
  append(lines, fact("baseline", baseline_sentence(record)));
  append(lines, fact("required", join(demand_sentences(record), "; ")));
  append(lines, fact("note", plain(join(record.notes, "; "))));
  append(lines, next_lines(record, width));
  return lines;
}

std::string headline(const Record& record) {
  return fmt::format("{} {}: {} ({})", verdict_word(record.verdict), subject_name(record),
                     verdict_sentence(record), run_sentence(record));
}

/// The text starts with the verdict's word: that is painted.
std::string paint_verdict(const std::string& text, const Record& record, bool colour) {
  const std::size_t length = verdict_word(record.verdict).size();
  return paint(text.substr(0, length), verdict_colour(record.verdict), colour) +
         text.substr(length);
}

std::string brief_line(const Record& record, const TerminalOptions& options) {
  std::string line = paint_verdict(headline(record), record, options.colour);
  const std::vector<CauseView> causes = causes_by_urgency(record);
  if (!causes.empty()) line += "; first: " + cause_sentence(causes.front());
  return line + '\n';
}

struct Screen {
  Lines head;
  std::vector<CauseView> causes;  ///< those shown
  std::vector<Lines> blocks;      ///< of each, without numbers and replay line
  Lines tail;
};

Screen compose(const Record& record, std::size_t width, const Detail& detail) {
  Screen screen{.head = wrap(headline(record), width), .causes = causes_by_urgency(record)};
  const std::size_t hidden = screen.causes.size() - std::min(screen.causes.size(), kMaxCauses);
  screen.causes.resize(screen.causes.size() - hidden);
  for (std::size_t i = 0; i < screen.causes.size(); ++i)
    screen.blocks.push_back(cause_head(screen.causes[i], i + 1, width, detail.cause_lines));
  if (hidden > 0)
    screen.tail = {fmt::format("{}; the JSON report has them all",
                               counted(static_cast<std::int64_t>(hidden), "more cause")),
                   ""};
  std::vector<MatrixRow> matrix = matrix_rows(record);
  const bool fails = std::any_of(matrix.begin(), matrix.end(),
                                 [](const MatrixRow& row) { return row.failed > 0; });
  Lines table = fails ? failing_matrix(record, std::move(matrix), detail.matrix_rows)
                      : full_matrix(record, std::move(matrix), width);
  if (!table.empty()) table.emplace_back();
  append(screen.tail, std::move(table));
  append(screen.tail, facts(record, width, detail));
  return screen;
}

std::size_t rows(const Screen& screen, std::size_t width) {
  std::size_t sum = screen.head.size() + 1 + rows(screen.tail, width);
  for (const Lines& block : screen.blocks) sum += rows(block, width) + 1;
  for (const CauseView& view : screen.causes) sum += rows({replay_line(*view.smallest)}, width);
  return sum;
}

}  // namespace

std::string terminal_report(const Record& record, const TerminalOptions& options) {
  if (options.brief) return brief_line(record, options);
  const auto width = static_cast<std::size_t>(std::clamp(options.width, 60, 1000));
  const auto height = static_cast<std::size_t>(std::max(options.height, 0));
  Screen screen;
  for (const Detail& detail : kDetails) {
    screen = compose(record, width, detail);
    if (rows(screen, width) <= height) break;
  }

  // Numbers are worth a lot where they are few and nothing where they push the verdict off the
  // screen: they get the rows that all else leaves.
  std::size_t used = rows(screen, width);
  std::string text = paint_verdict(join(screen.head, "\n"), record, options.colour) + "\n\n";
  for (std::size_t i = 0; i < screen.causes.size(); ++i) {
    const Failure& failure = *screen.causes[i].smallest;
    Lines& block = screen.blocks[i];
    block.front() = paint(block.front(), "1", options.colour);
    if (used + failure.numbers.size() <= height) {
      used += failure.numbers.size();
      append(block, numbers_of(failure, width));
    }
    for (const std::string& line : block) text += line + '\n';
    text += paint(replay_line(failure), "36", options.colour) + "\n\n";
  }
  for (const std::string& line : screen.tail) text += line + '\n';
  return text;
}

ATTEST_REPORT_FORMAT(terminal,
                     {.name = "terminal",
                      .extension = "txt",
                      .purpose = "the screen, as text",
                      .write = [](const Record& record) { return terminal_report(record); }});

}  // namespace attest
