// SPDX-License-Identifier: Apache-2.0
// The record as JSON: docs/record.md. The same record gives the same bytes.
#include <string>

#include "reports/format.hpp"
#include "reports/json_writer.hpp"
#include "reports/record_fields.hpp"

namespace attest {
namespace {

std::string write(const Record& record) { return json::text_of(json::to_json(record)) + '\n'; }

ATTEST_REPORT_FORMAT(json, {.name = "json",
                            .extension = "json",
                            .purpose = "everything, for programs (docs/record.md)",
                            .write = write});

}  // namespace
}  // namespace attest
