// SPDX-License-Identifier: Apache-2.0
// From a JSON value to a struct with fields() (reports/record_fields.hpp). Strict: every key must
// be there, and no other.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attest/bench_record.hpp"
#include "attest/detection.hpp"
#include "attest/verdict.hpp"
#include "reports/text.hpp"

namespace attest::json {

using Json = nlohmann::json;

constexpr std::size_t kQuoted = 60;  // columns of foreign text in an error

inline std::string quote(std::string_view text) {
  return '\'' + shorten(plain(text.substr(0, 4 * kQuoted)), kQuoted) + '\'';
}

/// What is being read and where; the first error stays.
struct Place {
  const Json& value;
  std::string where;
  std::string& error;

  void fail(std::string_view what) const {
    if (error.empty()) error = fmt::format("{}: {}", where.empty() ? "record" : where, what);
  }
  Place at(std::string_view key, const Json& member) const {
    return {member, where.empty() ? std::string(key) : fmt::format("{}.{}", where, key), error};
  }
};

struct ObjectReader;
template <class S>
requires requires(ObjectReader& reader, S& value) { fields(reader, value); }
void read(const Place& place, S& value);
template <class T>
void read(const Place& place, std::vector<T>& values);
template <class T>
void read(const Place& place, std::map<std::string, T>& values);
template <class T>
void read(const Place& place, std::optional<T>& value);

inline void read(const Place& place, std::string& text) {
  if (!place.value.is_string()) return place.fail("must be a string");
  text = place.value.get_ref<const std::string&>();
}
inline void read(const Place& place, bool& value) {
  if (!place.value.is_boolean()) return place.fail("must be true or false");
  value = place.value.get<bool>();
}
template <std::integral T>
void read(const Place& place, T& value) {
  if (!place.value.is_number_unsigned()) return place.fail("must be a whole number, not negative");
  const auto number = place.value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
    return place.fail(fmt::format("{} is too large", number));
  value = static_cast<T>(number);
}
inline void read(const Place& place, double& value) {
  if (place.value.is_number()) {
    value = place.value.get<double>();
    return;
  }
  const std::string text = place.value.is_string() ? place.value.get<std::string>() : "";
  if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (text == "inf" || text == "-inf") {
    value = std::numeric_limits<double>::infinity() * (text == "inf" ? 1 : -1);
  } else {
    place.fail("must be a number, \"nan\", \"inf\" or \"-inf\"");
  }
}
template <class Enum>
void read_name(const Place& place, Enum& value, std::optional<Enum> (*parse)(std::string_view)) {
  std::string text;
  read(place, text);
  if (!place.error.empty()) return;
  const std::optional<Enum> known = parse(text);
  if (!known) return place.fail(fmt::format("{} is none of the known ones", quote(text)));
  value = *known;
}
inline void read(const Place& place, Verdict& value) { read_name(place, value, parse_verdict); }
inline void read(const Place& place, Reason& value) { read_name(place, value, parse_reason); }
inline void read(const Place& place, SuiteVerdict& value) {
  read_name(place, value, parse_suite_verdict);
}
inline void read(const Place& place, Outcome& value) { read_name(place, value, parse_outcome); }
inline void read(const Place& place, Change& value) { read_name(place, value, parse_change); }

struct ObjectReader {
  explicit ObjectReader(const Place& object) : place(object) {
    if (!place.value.is_object()) place.fail("must be an object");
  }

  const Place& place;
  std::vector<std::string_view> known;

  const Json* find(const char* key) {
    if (!place.error.empty()) return nullptr;
    known.push_back(key);
    const auto member = place.value.find(key);
    if (member != place.value.end()) return &*member;
    place.fail(fmt::format("has no \"{}\"", key));
    return nullptr;
  }
  template <class T>
  void operator()(const char* key, T& member) {
    if (const Json* value = find(key)) read(place.at(key, *value), member);
  }
  void choice(const char* key, std::string& text, std::span<const std::string_view> list) {
    (*this)(key, text);
    if (place.error.empty() && std::find(list.begin(), list.end(), text) == list.end())
      place.fail(fmt::format("{} {} is none of the known ones", key, quote(text)));
  }
  template <class T>
  void fixed(const char* key, const T& expected) {
    const Json* value = find(key);
    if (value && *value != Json(expected))
      place.fail(fmt::format("{} does not agree with the rest", key));
  }
  template <class Function>
  void group(const char* key, Function function) {
    const Json* value = find(key);
    if (!value) return;
    const Place nested_place = place.at(key, *value);
    ObjectReader nested(nested_place);
    function(nested);
    nested.finish();
  }
  void finish() const {
    if (!place.error.empty() || known.size() == place.value.size()) return;
    for (const auto& item : place.value.items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        return place.fail(fmt::format("unknown key {}", quote(item.key())));
  }
};

template <class S>
requires requires(ObjectReader& reader, S& value) { fields(reader, value); }
void read(const Place& place, S& value) {
  ObjectReader reader(place);
  fields(reader, value);
  reader.finish();
}
template <class T>
void read(const Place& place, std::vector<T>& values) {
  if (!place.value.is_array()) return place.fail("must be an array");
  for (const Json& item : place.value) {
    if (!place.error.empty()) return;
    values.emplace_back();
    read({item, fmt::format("{}[{}]", place.where, values.size() - 1), place.error}, values.back());
  }
}
template <class T>
void read(const Place& place, std::map<std::string, T>& values) {
  if (!place.value.is_object()) return place.fail("must be an object");
  for (const auto& item : place.value.items())
    read(place.at(quote(item.key()), item.value()), values[item.key()]);
}
template <class T>
void read(const Place& place, std::optional<T>& value) {
  if (!place.value.is_null()) read(place, value.emplace());
}

}  // namespace attest::json
