// SPDX-License-Identifier: Apache-2.0
// attest grade: outputs that were computed elsewhere.
#include "attest/grade.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>

#include "attest/names.hpp"
#include "attest/text.hpp"
#include "reports/safetensors.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"

namespace attest {

namespace {

/// A tensor of a call, over bytes of its own.
struct HeldTensor {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> shape, strides;
  DLTensor tensor{};
};

DLDataType type_of(const std::string& name, const std::string& dtype) {
  constexpr std::string_view kNames[] = {"F64", "F32", "F16", "BF16"};  // by DType
  for (const DType type : kAllDTypes)
    if (dtype == kNames[static_cast<int>(type)]) return dl_dtype(type);
  if (dtype == "U8" || dtype == "BOOL") return kDlUint8;
  if (dtype == "I32" || dtype == "I64") return kDlInt32;
  throw CommandError(fmt::format("{}: dtype {} has no place in a call", plain(name), plain(dtype)));
}

void hold(const std::string& name, const NamedArray& array, HeldTensor& held) {
  const DLDataType type = type_of(name, array.dtype);
  const std::size_t size = type.bits / 8u;
  held.bytes.resize(array.values.size() * size);
  const auto floating = dtype_of(type);
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    std::byte* const at = held.bytes.data() + i * size;
    const double value = array.values[i];
    if (floating) {
      store(at, *floating, value);
    } else if (size == 1) {
      *at = static_cast<std::byte>(value != 0);
    } else {
      if (std::fabs(value) > 0x7fffffff)
        throw CommandError(fmt::format("{}: {:.0f} is too large", plain(name), value));
      const auto whole = static_cast<std::int32_t>(value);
      std::memcpy(at, &whole, sizeof whole);
    }
  }
  held.shape = array.shape;
  held.strides.assign(array.shape.size(), 1);
  for (std::size_t axis = array.shape.size(); axis-- > 1;)
    held.strides[axis - 1] = held.strides[axis] * held.shape[axis];
  held.tensor = {held.bytes.data(),
                 {kDLCPU, 0},
                 static_cast<std::int32_t>(held.shape.size()),
                 type,
                 held.shape.data(),
                 held.strides.data(),
                 0};
}

/// Where the tensors and scalars of a message (docs/worker.md) stand in a call.
struct Places {
  std::map<std::string, const DLTensor**> inputs;
  std::map<std::string, DLTensor**> outputs;
  std::map<std::string, double*> numbers;
  std::map<std::string, std::int64_t*> integers;
};

Places places_of(attest_attention& call) {
  return {{{"q", &call.q},
           {"k", &call.k},
           {"v", &call.v},
           {"bias", &call.bias},
           {"mask", &call.mask},
           {"blocks", &call.blocks},
           {"keep", &call.keep},
           {"alibi_slopes", &call.alibi_slopes},
           {"sink", &call.sink},
           {"seqlens_q", &call.seqlens_q},
           {"seqlens_k", &call.seqlens_k},
           {"left_pad_q", &call.left_pad_q},
           {"left_pad_k", &call.left_pad_k},
           {"cu_seqlens_q", &call.cu_seqlens_q},
           {"cu_seqlens_k", &call.cu_seqlens_k},
           {"q_offset", &call.q_offset},
           {"prefix_len", &call.prefix_len}},
          {{"o", &call.o}, {"lse", &call.lse}},
          {{"scale", &call.scale},
           {"softcap", &call.softcap},
           {"dropout_p", &call.dropout_p},
           {"rope_base", &call.rope_base},
           {"rope_scale", &call.rope_scale},
           {"rope_ntk", &call.rope_ntk}},
          {{"window_left", &call.window_left},
           {"window_right", &call.window_right},
           {"global_tokens", &call.global_tokens},
           {"block_q", &call.block_q},
           {"block_k", &call.block_k},
           {"rope_dim", &call.rope_dim},
           {"rope_position", &call.rope_position}}};
}

[[noreturn]] void bad_value(const std::string& key, const std::string& text) {
  throw CommandError(fmt::format("metadata: {}={} makes no sense", plain(key), plain(text)));
}

/// The place of `text` among the names of an enum of attest/plugin.h, which are those of the case
/// line.
std::int32_t choice(const std::string& key, const std::string& text,
                    const std::vector<std::string>& names) {
  for (std::size_t n = 0; n < names.size(); ++n)
    if (names[n] == text) return static_cast<std::int32_t>(n);
  bad_value(key, text);
}

void set_scalar(const Places& places, const std::string& key, const std::string& text,
                attest_attention& call) {
  if (const auto number = places.numbers.find(key); number != places.numbers.end()) {
    const auto value = read_number(text);
    if (!value) bad_value(key, text);
    *number->second = *value;
  } else if (const auto integer = places.integers.find(key); integer != places.integers.end()) {
    const auto value = read_number(text);
    if (!value || *value != std::floor(*value) || std::fabs(*value) > 1e15) bad_value(key, text);
    *integer->second = static_cast<std::int64_t>(*value);
  } else if (key == "base") {
    call.base = choice(key, text, {"full", "causal", "prefix"});
  } else if (key == "align") {
    call.align = choice(key, text, {"bottom_right", "top_left", "q_offset"});
  } else if (key == "alibi") {
    call.alibi = choice(key, text, {"none", "absolute", "signed", "key_anchored"});
  } else if (key == "alibi_inside_softcap") {
    call.alibi_inside_softcap = choice(key, text, {"false", "true"});
  } else if (key == "rope") {
    call.rope = choice(key, text, {"none", "interleaved", "half"});
  } else if (key != "precision") {
    throw CommandError(fmt::format("metadata: '{}' means nothing here", plain(key)));
  }
}

ExitCode run(const Arguments& arguments) {
  const std::string path = arguments.positional("FILE");
  const Result<Safetensors> file = read_safetensors_file(path);
  if (!file) throw CommandError(file.error());
  attest_attention call{};
  call.struct_size = sizeof call;
  call.scale = std::nan("");
  call.window_left = call.window_right = -1;
  call.rope_scale = call.rope_ntk = 1;
  call.rope_base = 10000;
  const Places places = places_of(call);
  std::map<std::string, HeldTensor> held;
  for (const auto& [name, array] : file->tensors) {
    hold(name, array, held[name]);
    if (const auto input = places.inputs.find(name); input != places.inputs.end())
      *input->second = &held[name].tensor;
    else if (const auto output = places.outputs.find(name); output != places.outputs.end())
      *output->second = &held[name].tensor;
    else
      throw CommandError(
          fmt::format("{}: tensor '{}' has no place in a call", plain(path), plain(name)));
  }
  for (const auto& [key, text] : file->metadata) set_scalar(places, key, text, call);
  if (!call.q || call.q->ndim != 4) throw CommandError(plain(path) + ": q wants 4 axes");
  if (std::isnan(call.scale)) call.scale = 1 / std::sqrt(static_cast<double>(call.q->shape[3]));
  const auto precision = file->metadata.find("precision");
  const std::string preset =
      arguments.value("--precision", precision == file->metadata.end() ? "f32" : precision->second);

  const Grade judged = grade(call, preset);
  if (judged.verdict == Verdict::error) throw CommandError(plain(path) + ": " + judged.message);
  fmt::print("{}: {}\n", name(judged.verdict), judged.message);
  return judged.passed()                         ? ExitCode::conformant
         : judged.verdict == Verdict::not_judged ? ExitCode::too_little_tested
                                                 : ExitCode::failed;
}

ATTEST_COMMAND(
    grade,
    {
        .name = "grade",
        .summary = "judge outputs that were computed elsewhere",
        .examples =
            "Examples:\n"
            "  attest grade call.safetensors --precision mma_f32acc\n"
            "The file holds q, k, v, o, where there is one lse, and what else the call was given, "
            "[B, H, L, D], under\nthe names of docs/worker.md; its metadata the scalars (base, "
            "align, scale, ...) and perhaps precision.\nExit codes: 0 pass, 1 fail, 2 no legal "
            "call, 4 nothing can be said of these values.",
        .positionals = {{"FILE", "a safetensors file of one call and its outputs"}},
        .options = {{"--precision", "PRESET", "docs/declaration.md; default f32"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
