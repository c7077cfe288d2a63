// SPDX-License-Identifier: Apache-2.0
#include "reports/json_document.hpp"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

namespace attest::json {
namespace {

constexpr std::size_t kMaxDepth = 8;  // a record has 5 levels

/// Walks over the text without building anything and finds what the parser would let through: more
/// levels than any document has (each would cost 50 bytes for one bracket) and repeated keys (of
/// which only one would be seen).
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
    error = fmt::format("nested deeper than {} levels", kMaxDepth);
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string, std::less<>>> keys_;
};

/// First of all: a foreign file, or one from the future, should be called so.
std::string schema_error(const Json& document, const DocumentKind& kind) {
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (!document.is_object() || schema == document.end() || !schema->is_string())
    return fmt::format("not a {} of attest: no \"schema\"", kind.noun);
  const auto& text = schema->get_ref<const std::string&>();
  if (text == kind.schema) return "";
  return fmt::format("schema {} is not the one read here, {}", quote(text), kind.schema);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  Screen screen;
  if (!Json::sax_parse(text, &screen)) return Error{screen.error};
  return Json::parse(text, nullptr, false);
}

Result<Json> parse_document(std::string_view text, const DocumentKind& kind) {
  if (text.size() > kind.max_bytes)
    return Error{
        fmt::format("larger than the {} MiB that a {} may have", kind.max_bytes >> 20, kind.noun)};
  Result<Json> parsed = parse_json(text);
  if (!parsed) return parsed;
  Json document = std::move(*parsed);
  if (std::string error = schema_error(document, kind); !error.empty()) return Error{error};
  return document;
}

std::string schema_of(std::string_view text) {
  const Result<Json> document = parse_json(text);
  if (!document || !document->is_object()) return "";
  const auto schema = document->find("schema");
  return schema != document->end() && schema->is_string() ? schema->get<std::string>() : "";
}

Result<std::string> read_document_file(const std::string& path, const DocumentKind& kind) {
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
  while (text.size() <= kind.max_bytes) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    text.append(buffer.data(), count);
    if (std::ferror(file.get())) return fail(message(errno));
    if (count == 0) break;
  }
  return text;
}

}  // namespace attest::json
