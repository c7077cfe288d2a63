// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <algorithm>

#include "reports/text.hpp"

namespace attest {
namespace {

std::string csv_cell(const std::string& cell) {
  std::string text = plain(cell);
  // A cell that begins so is run by a spreadsheet; a number may be negative.
  const bool formula = !text.empty() &&
                       std::string_view("=+-@").find(text[0]) != std::string::npos &&
                       text.find_first_not_of("0123456789.eE+-") != std::string::npos;
  if (formula) text = "'" + text;
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string terminal_table(const Table& table) {
  std::vector<std::size_t> widths;
  for (const Table::Column& column : table.columns) widths.push_back(columns(column.name));
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));

  std::string text = table.title.empty() ? "" : table.title + '\n';
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const std::string& word = cell(i);
      const std::string blanks(widths[i] - columns(word), ' ');
      line += i == 0 ? "" : "  ";
      line += table.columns[i].right ? blanks + word : word + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](std::size_t i) -> const std::string& { return table.columns[i].name; });
  for (const auto& row : table.rows)
    add_line([&](std::size_t i) -> const std::string& { return row[i]; });
  return text;
}

std::string markdown_table(const Table& table) {
  std::string text = table.title.empty() ? "" : markdown_escape(table.title) + "\n\n";
  std::string rule;
  for (const Table::Column& column : table.columns) {
    text += "| " + markdown_escape(column.name) + ' ';
    rule += column.right ? "|---:" : "|---";
  }
  text += "|\n" + rule + "|\n";
  for (const auto& row : table.rows) {
    for (const std::string& cell : row) text += "| " + markdown_escape(cell) + ' ';
    text += "|\n";
  }
  return text;
}

std::string csv_table(const Table& table) {
  std::string text;
  const auto add_line = [&text](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + csv_cell(cells[i]);
    text += "\r\n";
  };
  std::vector<std::string> head;
  for (const Table::Column& column : table.columns) head.push_back(column.name);
  add_line(head);
  for (const auto& row : table.rows) add_line(row);
  return text;
}

}  // namespace attest
