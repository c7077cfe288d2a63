// SPDX-License-Identifier: Apache-2.0
#include "reports/detection.hpp"
#include "reports/detection_fields.hpp"
#include "reports/json_reader.hpp"
#include "reports/json_writer.hpp"

namespace attest {

std::string detection_json(const DetectionReport& report) {
  return json::text_of(json::to_json(report)) + '\n';
}

std::string detection_line(const Detection& kernel) { return json::line_of(json::to_json(kernel)); }

std::string detection_header(const DetectionReport& report) {
  json::OrderedJson header;
  header["journal"] = report.schema;
  header["library"] = report.library;
  header["library_hash"] = report.library_hash;
  header["suite"] = report.suite;
  header["honest_suite"] = report.honest_suite;
  header["seed"] = report.seed;
  header["within"] = report.within;
  header["version"] = report.tool_version;
  header["commit"] = report.commit;
  header["requirements"] = report.requirements;
  return json::line_of(header);
}

Result<Detection> read_detection_line(std::string_view line) {
  const json::Json value = json::Json::parse(line, nullptr, false);
  if (value.is_discarded()) return Error{"not JSON, or cut short"};
  std::string error;
  Detection kernel;
  json::read(json::Place{value, "kernel", error}, kernel);
  if (!error.empty()) return Error{error};
  return kernel;
}

}  // namespace attest
