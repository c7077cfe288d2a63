// SPDX-License-Identifier: Apache-2.0
#include "reports/reader.hpp"

#include <fmt/format.h>

#include "reports/json_document.hpp"
#include "reports/record_fields.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr json::DocumentKind kKind{kRecordSchema, "record", kMaxRecordBytes};

std::string index_error(const Record& record) {
  for (std::size_t i = 0; i < record.causes.size(); ++i) {
    if (record.causes[i].id != static_cast<int>(i) + 1)
      return fmt::format("causes[{}].id: must be {}", i, i + 1);
    if (static_cast<std::size_t>(record.causes[i].smallest) >= record.failures.size())
      return fmt::format("causes[{}].smallest: there are {} failures", i, record.failures.size());
  }
  for (std::size_t i = 0; i < record.failures.size(); ++i)
    if (static_cast<std::size_t>(record.failures[i].cause) > record.causes.size())
      return fmt::format("failures[{}].cause: there are {} causes", i, record.causes.size());
  return "";
}

}  // namespace

Result<Record> read_record(std::string_view text) {
  Result<Record> record = json::read_document<Record>(text, kKind);
  if (!record) return record;
  if (const std::string error = index_error(*record); !error.empty()) return Error{error};
  return record;
}

Result<Record> read_record_file(const std::string& path) {
  return json::read_file_with(read_record, path, kKind);
}

}  // namespace attest
