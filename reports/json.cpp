// SPDX-License-Identifier: Apache-2.0
// The record as JSON: docs/record.md. The same record gives the same bytes.
#include <cmath>
#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/format.hpp"
#include "reports/record_fields.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

struct ObjectWriter;
template <class S>
requires requires(ObjectWriter& writer, const S& value) { fields(writer, value); }
Json to_json(const S& value);
template <class T>
Json to_json(const std::vector<T>& values);
template <class T>
Json to_json(const std::map<std::string, T>& values);
template <class T>
Json to_json(const std::optional<T>& value);

Json to_json(const std::string& text) { return text; }
Json to_json(const char* text) { return text; }
Json to_json(bool value) { return value; }
Json to_json(std::integral auto value) { return value; }
/// JSON has no such numbers; leaving them out would hide the very thing a failure is about.
Json to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
template <class Enum>
requires std::is_enum_v<Enum> Json to_json(Enum value) { return std::string(name(value)); }

struct ObjectWriter {
  Json object = Json::object();

  template <class T>
  void operator()(const char* key, const T& member) {
    object.push_back({key, to_json(member)});
  }
  void choice(const char* key, const std::string& text, std::span<const std::string_view>) {
    (*this)(key, text);
  }
  template <class T>
  void fixed(const char* key, const T& value) {
    (*this)(key, value);
  }
  template <class Function>
  void group(const char* key, Function function) {
    ObjectWriter nested;
    function(nested);
    object.push_back({key, std::move(nested.object)});
  }
};

template <class S>
requires requires(ObjectWriter& writer, const S& value) { fields(writer, value); }
Json to_json(const S& value) {
  ObjectWriter writer;
  fields(writer, value);
  return std::move(writer.object);
}
template <class T>
Json to_json(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(to_json(value));
  return array;
}
template <class T>
Json to_json(const std::map<std::string, T>& values) {
  Json object = Json::object();
  for (const auto& [key, value] : values) object.push_back({key, to_json(value)});
  return object;
}
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json();
}

// The counts of nine verdicts fit.
constexpr std::size_t kLineLength = 150;

/// Malformed UTF-8 (a kernel's message can hold anything) becomes U+FFFD.
std::string scalar(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_flat(const Json& value) {
  for (const Json& item : value)
    if (item.is_structured() && !item.empty()) return false;
  return true;
}

void print(const Json& value, std::size_t indent, std::string& out);

/// The items between their brackets, each after `first` or `between`.
void print_items(const Json& value, std::string_view first, std::string_view between,
                 std::string_view last, std::size_t indent, std::string& out) {
  out += value.is_object() ? '{' : '[';
  for (auto item = value.begin(); item != value.end(); ++item) {
    out += item == value.begin() ? first : between;
    if (value.is_object()) out += scalar(Json(item.key())) + ": ";
    print(*item, indent + 1, out);
  }
  out += last;
  out += value.is_object() ? '}' : ']';
}

/// Objects and arrays of scalars that fit stand on one line, so that counts and indices read like
/// rows of a table and a diff of two records shows one line for one fact.
void print(const Json& value, std::size_t indent, std::string& out) {
  if (!value.is_structured()) {
    out += scalar(value);
    return;
  }
  if (is_flat(value)) {
    std::string line;
    print_items(value, "", ", ", "", indent, line);
    if (line.size() + indent <= kLineLength) {
      out += line;
      return;
    }
  }
  const std::string margin(indent + 1, ' ');
  print_items(value, '\n' + margin, ",\n" + margin, '\n' + std::string(indent, ' '), indent, out);
}

std::string write(const Record& record) {
  std::string text;
  print(to_json(record), 0, text);
  return text + '\n';
}

ATTEST_REPORT_FORMAT(json, {.name = "json",
                            .extension = "json",
                            .purpose = "everything, for programs (docs/record.md)",
                            .write = write});

}  // namespace
}  // namespace attest
