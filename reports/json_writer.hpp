// SPDX-License-Identifier: Apache-2.0
// From a struct with fields() (reports/record_fields.hpp) to a JSON value, and to text.
#pragma once

#include <cmath>
#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace attest::json {

/// Keeps keys in the order in which they were written.
using OrderedJson = nlohmann::ordered_json;

struct ObjectWriter;
template <class S>
requires requires(ObjectWriter& writer, const S& value) { fields(writer, value); }
OrderedJson to_json(const S& value);
template <class T>
OrderedJson to_json(const std::vector<T>& values);
template <class T>
OrderedJson to_json(const std::map<std::string, T>& values);
template <class T>
OrderedJson to_json(const std::optional<T>& value);

inline OrderedJson to_json(const std::string& text) { return text; }
inline OrderedJson to_json(const char* text) { return text; }
inline OrderedJson to_json(bool value) { return value; }
OrderedJson to_json(std::integral auto value) { return value; }
/// JSON has no such numbers; leaving them out would hide the very thing a failure is about.
inline OrderedJson to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
template <class Enum>
requires std::is_enum_v<Enum> OrderedJson to_json(Enum value) { return std::string(name(value)); }

struct ObjectWriter {
  OrderedJson object = OrderedJson::object();

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
OrderedJson to_json(const S& value) {
  ObjectWriter writer;
  fields(writer, value);
  return std::move(writer.object);
}
template <class T>
OrderedJson to_json(const std::vector<T>& values) {
  OrderedJson array = OrderedJson::array();
  for (const T& value : values) array.push_back(to_json(value));
  return array;
}
template <class T>
OrderedJson to_json(const std::map<std::string, T>& values) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [key, value] : values) object.push_back({key, to_json(value)});
  return object;
}
template <class T>
OrderedJson to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : OrderedJson();
}

/// One line. Malformed UTF-8 (a kernel's message can hold anything) becomes U+FFFD.
std::string line_of(const OrderedJson& value);
/// Objects and arrays of scalars that fit stand on one line, so that counts and indices read like
/// rows of a table and a diff of two records shows one line for one fact.
std::string text_of(const OrderedJson& value);

}  // namespace attest::json
