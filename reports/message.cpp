// SPDX-License-Identifier: Apache-2.0
#include "reports/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "attest/dtype.hpp"
#include "reports/json_document.hpp"
#include "reports/json_writer.hpp"
#include "reports/safetensors.hpp"

namespace attest {
namespace {

using json::Json;
using json::OrderedJson;

constexpr std::string_view kStatuses[] = {"ok", "unsupported", "invalid", "out_of_memory",
                                          "failed"};

std::optional<DType> float_type(WireType type) {
  switch (type) {
    case WireType::f64: return DType::f64;
    case WireType::f32: return DType::f32;
    case WireType::f16: return DType::f16;
    case WireType::bf16: return DType::bf16;
    case WireType::u8:
    case WireType::i32: break;
  }
  return std::nullopt;
}

double element(const WireTensor& tensor, std::size_t i) {
  const char* const at = tensor.bytes.data() + i * size_of(tensor.form.type);
  if (const auto type = float_type(tensor.form.type)) return load(at, *type);
  if (tensor.form.type == WireType::u8) return static_cast<unsigned char>(*at);
  std::int32_t number = 0;
  std::memcpy(&number, at, sizeof number);
  return number;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

OrderedJson scalar_json(const WireScalar& scalar) {
  return std::visit([](const auto& value) { return json::to_json(value); }, scalar);
}

OrderedJson shapes_json(const std::map<std::string, WireShape>& shapes) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [key, form] : shapes)
    object[key] = {{"dtype", std::string(name(form.type))}, {"shape", form.shape}};
  return object;
}

std::string write_jsonl(const WorkerRequest& request) {
  OrderedJson line;
  line["id"] = request.id;
  line["op"] = request.operation;
  for (const auto& [key, value] : request.attributes) line[key] = scalar_json(value);
  if (!request.outputs.empty()) line["outputs"] = shapes_json(request.outputs);
  for (const auto& [key, tensor] : request.tensors) {
    OrderedJson data = OrderedJson::array();
    const std::size_t count = tensor.form.count();
    const bool whole = !float_type(tensor.form.type);
    for (std::size_t i = 0; i < count; ++i) {
      const double value = element(tensor, i);
      data.push_back(whole ? OrderedJson(static_cast<std::int64_t>(value)) : json::to_json(value));
    }
    line["tensors"][key] = {{"dtype", std::string(name(tensor.form.type))},
                            {"shape", tensor.form.shape},
                            {"data", std::move(data)}};
  }
  return json::line_of(line);
}

/// A value as metadata has it: texts alone.
std::string scalar_text(const WireScalar& scalar) {
  if (const auto* text = std::get_if<std::string>(&scalar)) return *text;
  return json::line_of(scalar_json(scalar));
}

std::string upper(std::string_view text) {
  std::string up(text);
  for (char& c : up) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return up;
}

std::string write_blob(const WorkerRequest& request) {
  OrderedJson header;
  OrderedJson& metadata = header["__metadata__"];
  metadata["id"] = std::to_string(request.id);
  metadata["op"] = request.operation;
  for (const auto& [key, value] : request.attributes) metadata[key] = scalar_text(value);
  if (!request.outputs.empty()) metadata["outputs"] = json::line_of(shapes_json(request.outputs));
  std::uint64_t at = 0;
  for (const auto& [key, tensor] : request.tensors) {
    const std::uint64_t end = at + tensor.bytes.size();
    header[key] = {{"dtype", upper(name(tensor.form.type))},
                   {"shape", tensor.form.shape},
                   {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = json::line_of(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  std::string blob;
  blob.reserve(8 + text.size() + at);
  for (int shift = 0; shift < 64; shift += 8)
    blob.push_back(static_cast<char>(text.size() >> shift & 0xff));
  blob += text;
  for (const auto& [key, tensor] : request.tensors) blob += tensor.bytes;
  return blob;
}

/// "" or why the output is not what was asked for.
std::string misfit(const std::string& key, const WireShape& wanted,
                   const std::vector<std::int64_t>& shape, std::size_t values) {
  if (shape != wanted.shape)
    return fmt::format("'{}' has shape {} where {} is asked for", key, shape_text(shape),
                       shape_text(wanted.shape));
  if (values != wanted.count())
    return fmt::format("'{}' has {} numbers where its shape takes {}", key, values, wanted.count());
  return "";
}

std::string encoded(const std::vector<double>& values, DType type) {
  std::string bytes(values.size() * size_of(type), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    store(bytes.data() + i * size_of(type), type, values[i]);
  return bytes;
}

/// One output given in JSON. "" or what is wrong with it.
std::string read_output(const std::string& key, const Json& value, const WireShape& wanted,
                        std::string& bytes) {
  const auto type = float_type(wanted.type);
  if (!type) return fmt::format("'{}' is no output", key);
  if (!value.is_object() || !value.contains("shape") || !value.contains("data"))
    return fmt::format("'{}' must have shape and data", key);
  std::string error;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  for (const auto& item : value.items()) {
    const json::Place place{item.value(), key + "." + item.key(), error};
    std::string dtype;
    if (item.key() == "shape") {
      json::read(place, shape);
    } else if (item.key() == "data") {
      json::read(place, values);
    } else if (item.key() == "dtype") {
      json::read(place, dtype);
      if (error.empty() && dtype != name(wanted.type))
        return fmt::format("'{}' has dtype {} where {} is asked for", key, json::quote(dtype),
                           name(wanted.type));
    } else {
      return fmt::format("'{}' has a key {}, which means nothing", key, json::quote(item.key()));
    }
  }
  if (error.empty()) error = misfit(key, wanted, shape, values.size());
  if (error.empty()) bytes = encoded(values, *type);
  return error;
}

using Texts = std::map<std::string, std::string>;

/// What is no tensor. `texts` holds "id" as digits.
std::string read_texts(const Texts& texts, const WorkerRequest& request, WorkerAnswer& answer) {
  const std::map<std::string_view, std::string*> places{{"status", &answer.status},
                                                        {"message", &answer.message},
                                                        {"name", &answer.name},
                                                        {"version", &answer.version},
                                                        {"declaration", &answer.declaration}};
  bool has_id = false;
  for (const auto& [key, text] : texts) {
    if (key == "id") {
      has_id = true;
      if (text != std::to_string(request.id))
        return fmt::format("answers request {} where {} was sent", json::quote(text), request.id);
      answer.id = request.id;
    } else if (const auto place = places.find(key); place != places.end()) {
      *place->second = text;
    } else {
      return fmt::format("has a key {}, which means nothing", json::quote(key));
    }
  }
  if (!has_id) return "has no 'id'";
  if (std::find(std::begin(kStatuses), std::end(kStatuses), answer.status) == std::end(kStatuses))
    return fmt::format("status {} is none of {}", json::quote(answer.status),
                       fmt::join(kStatuses, ", "));
  return "";
}

/// An answer that is ok has every output.
std::string missing_output(const WorkerRequest& request, const WorkerAnswer& answer) {
  if (answer.status != "ok") return "";
  for (const auto& [key, form] : request.outputs)
    if (!answer.outputs.contains(key)) return fmt::format("has no '{}'", key);
  return "";
}

Result<WorkerAnswer> read_jsonl(std::string_view text, const WorkerRequest& request) {
  const Result<Json> document = json::parse_json(text);
  if (!document) return Error{document.error()};
  if (!document->is_object()) return Error{"must be an object"};
  WorkerAnswer answer;
  Texts texts;
  for (const auto& item : document->items()) {
    if (item.key() == "tensors") continue;
    if (item.key() == "id" && item.value().is_number_unsigned())
      texts["id"] = std::to_string(item.value().get<std::uint64_t>());
    else if (item.value().is_string())
      texts[item.key()] = item.value().get<std::string>();
    else
      return Error{fmt::format("{} has a value of the wrong kind", json::quote(item.key()))};
  }
  if (const std::string error = read_texts(texts, request, answer); !error.empty())
    return Error{error};
  if (document->contains("tensors")) {
    const Json& tensors = (*document)["tensors"];
    if (!tensors.is_object()) return Error{"'tensors' must be an object"};
    for (const auto& item : tensors.items()) {
      const auto wanted = request.outputs.find(item.key());
      if (wanted == request.outputs.end())
        return Error{fmt::format("gives {}, which is not asked for", json::quote(item.key()))};
      const std::string error =
          read_output(item.key(), item.value(), wanted->second, answer.outputs[item.key()]);
      if (!error.empty()) return Error{error};
    }
  }
  if (const std::string error = missing_output(request, answer); !error.empty())
    return Error{error};
  return answer;
}

Result<WorkerAnswer> read_blob(std::string_view text, const WorkerRequest& request) {
  const Result<Safetensors> blob = read_safetensors(text);
  if (!blob) return Error{blob.error()};
  WorkerAnswer answer;
  if (const std::string error = read_texts(blob->metadata, request, answer); !error.empty())
    return Error{error};
  for (const auto& [key, array] : blob->tensors) {
    const auto wanted = request.outputs.find(key);
    if (wanted == request.outputs.end())
      return Error{fmt::format("gives {}, which is not asked for", json::quote(key))};
    const auto type = float_type(wanted->second.type);
    if (!type || array.dtype != upper(name(wanted->second.type)))
      return Error{fmt::format("'{}' has dtype {} where {} is asked for", key, array.dtype,
                               upper(name(wanted->second.type)))};
    const std::string error = misfit(key, wanted->second, array.shape, array.values.size());
    if (!error.empty()) return Error{error};
    answer.outputs[key] = encoded(array.values, *type);
  }
  if (const std::string error = missing_output(request, answer); !error.empty())
    return Error{error};
  return answer;
}

}  // namespace

std::string_view name(WireType type) {
  constexpr std::string_view kNames[] = {"f64", "f32", "f16", "bf16", "u8", "i32"};
  return kNames[static_cast<int>(type)];
}

std::size_t size_of(WireType type) {
  constexpr std::size_t kSizes[] = {8, 4, 2, 2, 1, 4};
  return kSizes[static_cast<int>(type)];
}

std::size_t WireShape::count() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::string write_request(const WorkerRequest& request, MessageFormat format) {
  return format == MessageFormat::jsonl ? write_jsonl(request) : write_blob(request);
}

Result<WorkerAnswer> read_answer(std::string_view text, const WorkerRequest& request,
                                 MessageFormat format) {
  return format == MessageFormat::jsonl ? read_jsonl(text, request) : read_blob(text, request);
}

std::string write_worker_command(const WorkerCommand& command) {
  OrderedJson object;
  object["arguments"] = command.arguments;
  object["format"] = std::string(name(command.format));
  object["over_stdio"] = command.over_stdio;
  return json::line_of(object);
}

Result<WorkerCommand> read_worker_command(std::string_view text) {
  const Result<Json> document = json::parse_json(text);
  if (!document) return Error{document.error()};
  WorkerCommand command;
  std::string error, format;
  if (!document->is_object() || document->size() != 3 || !document->contains("arguments") ||
      !document->contains("format") || !document->contains("over_stdio"))
    return Error{"must have arguments, format and over_stdio, and nothing else"};
  json::read({(*document)["arguments"], "arguments", error}, command.arguments);
  json::read({(*document)["format"], "format", error}, format);
  json::read({(*document)["over_stdio"], "over_stdio", error}, command.over_stdio);
  const auto known = parse_message_format(format);
  if (error.empty() && !known) error = fmt::format("format {} is none", json::quote(format));
  if (error.empty() && command.arguments.empty()) error = "names no program";
  if (!error.empty()) return Error{error};
  command.format = *known;
  return command;
}

}  // namespace attest
