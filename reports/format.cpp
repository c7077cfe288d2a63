// SPDX-License-Identifier: Apache-2.0
#include "reports/format.hpp"

#include <algorithm>

namespace attest {
namespace {

// A function-local static: registration runs before main, in any order of files.
std::vector<ReportFormat>& registry() {
  static std::vector<ReportFormat> formats;
  return formats;
}

}  // namespace

const std::vector<ReportFormat>& report_formats() { return registry(); }

const ReportFormat* find_report_format(std::string_view name) {
  for (const ReportFormat& format : registry())
    if (format.name == name) return &format;
  return nullptr;
}

bool register_report_format(ReportFormat format) {
  auto& formats = registry();
  const auto place = std::lower_bound(
      formats.begin(), formats.end(), format,
      [](const ReportFormat& a, const ReportFormat& b) { return a.name < b.name; });
  formats.insert(place, format);
  return true;
}

}  // namespace attest
