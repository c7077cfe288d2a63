// SPDX-License-Identifier: Apache-2.0
// What the suite and a program of any language say to each other (docs/worker.md): one call as a
// request, what came of it as an answer. Two formats: a safetensors blob, or a line of JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attest/result.hpp"

namespace attest {

inline constexpr std::uint64_t kWorkerProtocol = 1;

/// Element types of tensors in messages. Booleans travel as u8, 0 or 1.
enum class WireType : std::uint8_t { f64, f32, f16, bf16, u8, i32 };
std::string_view name(WireType type);
std::size_t size_of(WireType type);

/// What an answer must hold, under a name.
struct WireShape {
  WireType type = WireType::f32;
  std::vector<std::int64_t> shape;
  std::size_t count() const;  ///< of elements
};

/// Row-major, without gaps.
struct WireTensor {
  WireShape form;
  std::string bytes;
};

using WireScalar = std::variant<bool, std::int64_t, double, std::string>;

struct WorkerRequest {
  std::uint64_t id = 0;
  std::string operation;  ///< hello, forward, backward, decode, rope
  std::vector<std::pair<std::string, WireScalar>> attributes;
  std::map<std::string, WireTensor> tensors;
  std::map<std::string, WireShape> outputs;
};

/// Answer to hello: name, version, declaration. To a call: status, and the outputs where it is ok.
struct WorkerAnswer {
  std::uint64_t id = 0;
  std::string status = "ok";  ///< ok, unsupported, invalid, out_of_memory, failed
  std::string message;
  std::string name, version, declaration;
  std::map<std::string, std::string> outputs;  ///< bytes of each, as asked for
};

enum class MessageFormat : std::uint8_t { safetensors, jsonl };
constexpr std::string_view name(MessageFormat format) {
  return format == MessageFormat::jsonl ? "jsonl" : "safetensors";
}
constexpr std::optional<MessageFormat> parse_message_format(std::string_view text) {
  for (const MessageFormat format : {MessageFormat::safetensors, MessageFormat::jsonl})
    if (name(format) == text) return format;
  return std::nullopt;
}

/// safetensors: the blob; metadata holds what is no tensor, as text. jsonl: one line, without its
/// end.
std::string write_request(const WorkerRequest& request, MessageFormat format);

/// Refuses, in one line that names the place: what is no message, answers something else, lacks an
/// output or has another, gives one in another type or shape, a status that is none. Numbers of
/// JSON are rounded to the type that was asked for; "nan", "inf" and "-inf" stand for what JSON has
/// no number for. Any bytes are safe to pass.
Result<WorkerAnswer> read_answer(std::string_view text, const WorkerRequest& request,
                                 MessageFormat format);

/// How to start a program that answers.
struct WorkerCommand {
  std::vector<std::string> arguments;  ///< of which the first is the program
  MessageFormat format = MessageFormat::jsonl;
  bool over_stdio = false;  ///< on its stdin and stdout, as ssh passes nothing else on
};
std::string write_worker_command(const WorkerCommand& command);
Result<WorkerCommand> read_worker_command(std::string_view text);

}  // namespace attest
