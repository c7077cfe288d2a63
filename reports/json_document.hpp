// SPDX-License-Identifier: Apache-2.0
// From a file to a JSON value, with whatever a stranger may have put there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attest/result.hpp"
#include "reports/json_reader.hpp"

namespace attest::json {

/// What a document calls itself in its "schema", and in an error.
struct DocumentKind {
  std::string_view schema;  ///< "attest.record/1"
  std::string_view noun;    ///< "record"
  std::size_t max_bytes;
};

/// JSON of any kind: refuses what is none, nested deeper than any document of this project, or has
/// a key twice.
Result<Json> parse_json(std::string_view text);

/// Refuses, in one line: what is no JSON, too large, nested deeper than any document of this
/// project or with a key twice; then, what calls itself something else.
Result<Json> parse_document(std::string_view text, const DocumentKind& kind);

/// What a document calls itself; "" where it says nothing, or is no JSON.
std::string schema_of(std::string_view text);

/// The file, whole; the error starts with its path.
Result<std::string> read_document_file(const std::string& path, const DocumentKind& kind);

/// The file, read by `read`, which takes a text; the error starts with the path.
template <class Read>
auto read_file_with(const Read& read, const std::string& path, const DocumentKind& kind)
    -> decltype(read(std::string_view{})) {
  const Result<std::string> text = read_document_file(path, kind);
  if (!text) return Error{text.error()};
  auto value = read(std::string_view(*text));
  if (!value) return Error{plain(path) + ": " + value.error()};
  return value;
}

/// A struct with fields(). The error names the place.
template <class T>
Result<T> read_document(std::string_view text, const DocumentKind& kind) {
  const Result<Json> document = parse_document(text, kind);
  if (!document) return Error{document.error()};
  T value;
  std::string error;
  // Of a record the places are known by themselves.
  read(Place{*document, kind.noun == "record" ? "" : std::string(kind.noun), error}, value);
  if (!error.empty()) return Error{error};
  return value;
}

}  // namespace attest::json
