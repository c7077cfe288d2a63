// SPDX-License-Identifier: Apache-2.0
#include "reports/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "attest/dtype.hpp"
#include "reports/json_document.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeader = std::size_t{16} << 20;
constexpr std::size_t kMaxFile = std::size_t{1} << 30;
constexpr std::size_t kMaxTensors = 100'000;

using json::Json;

/// An element type: its size, and its value from its bytes.
struct ElementType {
  std::string_view name;
  std::size_t bytes;
  double (*value)(const char* at);
};

template <DType kType>
double float_value(const char* at) {
  return load(at, kType);
}
template <class Integer>
double whole_value(const char* at) {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

constexpr ElementType kElementTypes[] = {
    {"F64", 8, float_value<DType::f64>},   {"F32", 4, float_value<DType::f32>},
    {"F16", 2, float_value<DType::f16>},   {"BF16", 2, float_value<DType::bf16>},
    {"I64", 8, whole_value<std::int64_t>}, {"I32", 4, whole_value<std::int32_t>},
    {"U8", 1, whole_value<std::uint8_t>},  {"BOOL", 1, whole_value<std::uint8_t>}};

const ElementType* type_named(std::string_view name) {
  for (const ElementType& type : kElementTypes)
    if (type.name == name) return &type;
  return nullptr;
}

std::string type_names() {
  std::string names;
  for (const ElementType& type : kElementTypes)
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

/// Where a tensor's bytes lie, counted from the end of the header.
struct Extent {
  std::uint64_t begin = 0, end = 0;
};

/// An array of whole numbers, none negative.
std::optional<std::vector<std::uint64_t>> numbers(const Json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<std::uint64_t> all;
  for (const Json& item : value) {
    if (!item.is_number_unsigned()) return std::nullopt;
    all.push_back(item.get<std::uint64_t>());
  }
  return all;
}

/// Product of the shape; nullopt beyond what a file can hold.
std::optional<std::uint64_t> count_of(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) {
    if (extent > kMaxFile || (extent != 0 && count > kMaxFile / extent)) return std::nullopt;
    count *= extent;
  }
  return count;
}

/// One entry of the header. "" or what is wrong with it.
std::string read_tensor(const Json& entry, std::string_view data, NamedArray& array,
                        Extent& extent) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    return "must have dtype, shape and data_offsets, and nothing else";
  if (!entry["dtype"].is_string()) return "dtype must be a string";
  const std::string name = entry["dtype"].get<std::string>();
  const ElementType* const type = type_named(name);
  if (!type) return fmt::format("dtype {} is none of {}", json::quote(name), type_names());
  const auto shape = numbers(entry["shape"]), offsets = numbers(entry["data_offsets"]);
  const auto count = shape ? count_of(*shape) : std::nullopt;
  if (!count) return "shape must be a list of sizes that a file can hold";
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1] ||
      (*offsets)[1] > data.size())
    return "data_offsets lie outside the data";
  extent = {(*offsets)[0], (*offsets)[1]};
  if (extent.end - extent.begin != *count * type->bytes)
    return fmt::format("{} bytes, but the shape takes {}", extent.end - extent.begin,
                       *count * type->bytes);
  array.dtype = name;
  for (const std::uint64_t size : *shape) array.shape.push_back(static_cast<std::int64_t>(size));
  array.values.reserve(*count);
  for (std::uint64_t i = 0; i < *count; ++i)
    array.values.push_back(type->value(data.data() + extent.begin + i * type->bytes));
  return "";
}

std::string read_metadata(const Json& entry, std::map<std::string, std::string>& metadata) {
  if (!entry.is_object()) return "must be an object of strings";
  for (const auto& item : entry.items()) {
    if (!item.value().is_string()) return "must be an object of strings";
    metadata[item.key()] = item.value().get<std::string>();
  }
  return "";
}

}  // namespace

Result<Safetensors> read_safetensors(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) return Error{"shorter than the 8 bytes of its header's length"};
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (length > kMaxHeader || length > bytes.size() - kLengthBytes)
    return Error{fmt::format("no safetensors: a header of {} bytes does not fit", length)};
  const std::string_view header = bytes.substr(kLengthBytes, length);
  const std::string_view data = bytes.substr(kLengthBytes + length);
  const Result<Json> document = json::parse_json(header);
  if (!document) return Error{"header: " + document.error()};
  if (!document->is_object() || document->size() > kMaxTensors)
    return Error{"header: must be an object of tensors"};

  Safetensors file;
  std::vector<Extent> extents;
  for (const auto& item : document->items()) {
    Extent extent;
    const std::string error =
        item.key() == "__metadata__"
            ? read_metadata(item.value(), file.metadata)
            : read_tensor(item.value(), data, file.tensors[item.key()], extent);
    if (!error.empty()) return Error{fmt::format("{}: {}", json::quote(item.key()), error)};
    if (item.key() != "__metadata__") extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != covered) return Error{"tensors overlap, or leave bytes between them"};
    covered = extent.end;
  }
  if (covered != data.size()) return Error{"bytes behind the last tensor"};
  return file;
}

Result<Safetensors> read_safetensors_file(const std::string& path) {
  const auto read = [](std::string_view bytes) -> Result<Safetensors> {
    if (bytes.size() > kMaxFile) return Error{"larger than 1 GiB"};
    return read_safetensors(bytes);
  };
  return json::read_file_with(read, path, {"", "file", kMaxFile});
}

}  // namespace attest
