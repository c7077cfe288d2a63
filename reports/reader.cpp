// SPDX-License-Identifier: Apache-2.0
#include "reports/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <system_error>
#include <vector>

#include "reports/record_fields.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDepth = 8;  // a record has 5 levels
constexpr std::size_t kQuoted = 60;   // columns of foreign text in an error

std::string quote(std::string_view text) {
  return '\'' + shorten(plain(text.substr(0, 4 * kQuoted)), kQuoted) + '\'';
}

/// Walks over the text without building anything and finds what the parser would let through: more
/// levels than a record has (each would cost 50 bytes for one bracket) and repeated keys (of which
/// only one would be seen).
class Screen : public nlohmann::json_sax<Json> {
 public:
  std::string error;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    error = fmt::format("key {} stands twice in one object", quote(name));
    return false;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    error = fmt::format("not JSON, or cut short: byte {}, near {}", position, quote(last_token));
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    error = fmt::format("nested deeper than the {} levels of a record", kMaxDepth);
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string, std::less<>>> keys_;
};

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

void read(const Place& place, std::string& text) {
  if (!place.value.is_string()) return place.fail("must be a string");
  text = place.value.get_ref<const std::string&>();
}
void read(const Place& place, bool& value) {
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
void read(const Place& place, double& value) {
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
void read(const Place& place, Verdict& value) { read_name(place, value, parse_verdict); }
void read(const Place& place, Reason& value) { read_name(place, value, parse_reason); }
void read(const Place& place, SuiteVerdict& value) { read_name(place, value, parse_suite_verdict); }

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

/// First of all: a foreign file, or one from the future, should be called so.
std::string schema_error(const Json& document) {
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (!document.is_object() || schema == document.end() || !schema->is_string())
    return "not a record of attest: no \"schema\"";
  const auto& text = schema->get_ref<const std::string&>();
  if (text == kRecordSchema) return "";
  return fmt::format("schema {} is not the one read here, {}", quote(text), kRecordSchema);
}

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

Result<Record> read_record(std::string_view json) {
  if (json.size() > kMaxRecordBytes)
    return Error{
        fmt::format("larger than the {} MiB that a record may have", kMaxRecordBytes >> 20)};
  Screen screen;
  if (!Json::sax_parse(json, &screen)) return Error{screen.error};
  const Json document = Json::parse(json, nullptr, false);
  std::string error = schema_error(document);
  Record record;
  if (error.empty()) read(Place{document, "", error}, record);
  if (error.empty()) error = index_error(record);
  if (!error.empty()) return Error{error};
  return record;
}

Result<Record> read_record_file(const std::string& path) {
  const auto fail = [&path](const std::string& what) {
    return Error{fmt::format("{}: {}", plain(path), what)};
  };
  const auto message = [](int error) { return std::generic_category().message(error); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) return fail(message(errno));
  // Read up to one byte past the limit, whatever the file says of its size: it may be a pipe.
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (text.size() <= kMaxRecordBytes) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    text.append(buffer.data(), count);
    if (std::ferror(file.get())) return fail(message(errno));
    if (count == 0) break;
  }
  Result<Record> record = read_record(text);
  if (!record) return fail(record.error());
  return record;
}

}  // namespace attest
