// SPDX-License-Identifier: Apache-2.0
// Report formats: each turns a whole record into a whole text.
//
// Adding one is adding one file to this folder: write the function, and under it
//   ATTEST_REPORT_FORMAT(csv, {.name = "csv", .extension = "csv", .purpose = "...", .write =
//   write});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/record.hpp"

namespace attest {

struct ReportFormat {
  std::string_view name;       ///< "json": also the option, --json FILE
  std::string_view extension;  ///< without the dot
  std::string_view purpose;    ///< one clause for --help
  std::string (*write)(const Record&) = nullptr;
};

/// Sorted by name, whatever the link order.
const std::vector<ReportFormat>& report_formats();
const ReportFormat* find_report_format(std::string_view name);
bool register_report_format(ReportFormat format);

#define ATTEST_REPORT_FORMAT(identifier, ...)                       \
  [[maybe_unused]] static const bool identifier##_format_is_known = \
      ::attest::register_report_format(::attest::ReportFormat __VA_ARGS__)

}  // namespace attest
