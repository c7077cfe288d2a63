// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or a record that every format can write and that reads
// back as itself.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "reports/format.hpp"
#include "reports/reader.hpp"
#include "reports/terminal.hpp"
#include "reports/verdict_table.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const auto record = read_record({reinterpret_cast<const char*>(data), size});
  if (!record) {
    require_plain_refusal(record);
    return 0;
  }
  for (const ReportFormat& format : report_formats()) require(!format.write(*record).empty());
  require(terminal_report(*record, {.colour = true, .width = 60, .height = 10}).size() > 1);
  require(!verdict_table({*record, *record}, TableStyle::markdown).empty());
  const ReportFormat* json = find_report_format("json");
  require(json != nullptr);
  const std::string text = json->write(*record);
  const auto again = read_record(text);
  require(static_cast<bool>(again));
  require(json->write(*again) == text);
  return 0;
}
