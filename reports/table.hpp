// SPDX-License-Identifier: Apache-2.0
// A table as data, and as text for a terminal, for Markdown and as CSV.
#pragma once

#include <string>
#include <vector>

namespace attest {

struct Table {
  std::string title;
  struct Column {
    std::string name;
    bool right = true;  ///< numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

/// Columns two blanks apart; the title on a line of its own.
std::string terminal_table(const Table& table);
std::string markdown_table(const Table& table);
/// RFC 4180, the head first. What spreadsheets take for a formula stays text.
std::string csv_table(const Table& table);

}  // namespace attest
