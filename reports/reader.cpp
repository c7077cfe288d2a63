// SPDX-License-Identifier: Apache-2.0
#include "reports/reader.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

#include "reports/json_reader.hpp"
#include "reports/record_fields.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kMaxDepth = 8;  // a record has 5 levels

/// Walks over the text without building anything and finds what the parser would let through: more
/// levels than a record has (each would cost 50 bytes for one bracket) and repeated keys (of which
/// only one would be seen).
class Screen : public nlohmann::json_sax<json::Json> {
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
    error = fmt::format("key {} stands twice in one object", json::quote(name));
    return false;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    error =
        fmt::format("not JSON, or cut short: byte {}, near {}", position, json::quote(last_token));
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

/// First of all: a foreign file, or one from the future, should be called so.
std::string schema_error(const json::Json& document) {
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (!document.is_object() || schema == document.end() || !schema->is_string())
    return "not a record of attest: no \"schema\"";
  const auto& text = schema->get_ref<const std::string&>();
  if (text == kRecordSchema) return "";
  return fmt::format("schema {} is not the one read here, {}", json::quote(text), kRecordSchema);
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

Result<Record> read_record(std::string_view text) {
  if (text.size() > kMaxRecordBytes)
    return Error{
        fmt::format("larger than the {} MiB that a record may have", kMaxRecordBytes >> 20)};
  Screen screen;
  if (!json::Json::sax_parse(text, &screen)) return Error{screen.error};
  const json::Json document = json::Json::parse(text, nullptr, false);
  std::string error = schema_error(document);
  Record record;
  if (error.empty()) json::read(json::Place{document, "", error}, record);
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
