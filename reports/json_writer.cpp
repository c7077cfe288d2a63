// SPDX-License-Identifier: Apache-2.0
#include "reports/json_writer.hpp"

namespace attest::json {
namespace {

// The counts of nine verdicts fit.
constexpr std::size_t kLineLength = 150;

bool is_flat(const OrderedJson& value) {
  for (const OrderedJson& item : value)
    if (item.is_structured() && !item.empty()) return false;
  return true;
}

void print(const OrderedJson& value, std::size_t indent, std::string& out);

/// The items between their brackets, each after `first` or `between`.
void print_items(const OrderedJson& value, std::string_view first, std::string_view between,
                 std::string_view last, std::size_t indent, std::string& out) {
  out += value.is_object() ? '{' : '[';
  for (auto item = value.begin(); item != value.end(); ++item) {
    out += item == value.begin() ? first : between;
    if (value.is_object()) out += line_of(OrderedJson(item.key())) + ": ";
    print(*item, indent + 1, out);
  }
  out += last;
  out += value.is_object() ? '}' : ']';
}

void print(const OrderedJson& value, std::size_t indent, std::string& out) {
  if (!value.is_structured()) {
    out += line_of(value);
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

}  // namespace

std::string line_of(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string text_of(const OrderedJson& value) {
  std::string text;
  print(value, 0, text);
  return text;
}

}  // namespace attest::json
