// SPDX-License-Identifier: Apache-2.0
// The JSON form of models, machines and costs, as reports/record_fields.hpp has that of a record. A
// change here changes reports/schema/ and, where an old reader would misread it, the schema's
// number.
#pragma once

#include <array>
#include <string_view>

#include "attest/cost.hpp"
#include "reports/record_fields.hpp"

namespace attest {

inline constexpr const char* kModelSchema = "attest.model/1";
inline constexpr const char* kMachineSchema = "attest.machine/1";
inline constexpr std::array<std::string_view, 3> kActivations{"gelu", "swiglu", "geglu"};
inline constexpr std::array<std::string_view, 2> kNorms{"layer_norm", "rms_norm"};
inline constexpr std::array<std::string_view, 5> kPhases{"prefill", "decode", "train", "forward",
                                                         "backward"};

template <class Visitor, MaybeConst<ModelShape> S>
void fields(Visitor& visit, S& model) {
  visit.fixed("schema", kModelSchema);
  visit("name", model.name);
  visit("source", model.source);
  visit("layers", model.layers);
  visit("hidden", model.hidden);
  visit("heads", model.heads);
  visit("kv_heads", model.kv_heads);
  visit("head_dim", model.head_dim);
  visit("ffn", model.ffn);
  visit.choice("activation", model.activation, kActivations);
  visit("experts", model.experts);
  visit("experts_per_token", model.experts_per_token);
  visit.choice("norm", model.norm, kNorms);
  visit("norms_per_layer", model.norms_per_layer);
  visit("vocab", model.vocab);
  visit("tied_head", model.tied_head);
  visit("learned_positions", model.learned_positions);
  visit("qkv_bias", model.qkv_bias);
  visit("out_bias", model.out_bias);
  visit("ffn_bias", model.ffn_bias);
  visit("windows", model.windows);
  visit("sinks", model.sinks);
  visit("softcap", model.softcap);
}

template <class Visitor, MaybeConst<MachineShape> S>
void fields(Visitor& visit, S& machine) {
  visit.fixed("schema", kMachineSchema);
  visit("name", machine.name);
  visit("source", machine.source);
  visit("memory_bytes", machine.memory_bytes);
  visit("bytes_per_second", machine.bytes_per_second);
  visit("flop_per_second", machine.flop_per_second);
}

template <class Visitor, MaybeConst<CostFlops> S>
void fields(Visitor& visit, S& flops) {
  visit("matrix", flops.matrix);
  visit("softmax", flops.softmax);
  visit("other", flops.other);
}

template <class Visitor, MaybeConst<CostPart> S>
void fields(Visitor& visit, S& part) {
  visit("name", part.name);
  visit("formula", part.formula);
  visit("flops", part.flops);
  visit("parameters", part.parameters);
  visit("bytes", part.bytes);
  visit("saved_bytes", part.saved_bytes);
}

template <class Visitor, MaybeConst<CostAttention> S>
void fields(Visitor& visit, S& attention) {
  visit("implementation", attention.implementation);
  visit("flops", attention.flops);
  visit("bytes", attention.bytes);
  visit("extra_bytes", attention.extra_bytes);
  visit("saved_bytes", attention.saved_bytes);
  visit("intensity", attention.intensity);
  visit("seconds", attention.seconds);
  visit("bound", attention.bound);
}

template <class Visitor, MaybeConst<CostVariant> S>
void fields(Visitor& visit, S& variant) {
  visit("heads", variant.heads);
  visit("kv_heads", variant.kv_heads);
  visit("parameters", variant.parameters);
  visit("cache_bytes_per_token", variant.cache_bytes_per_token);
  visit("cache_bytes", variant.cache_bytes);
  visit("parts", variant.parts);
  visit("attention", variant.attention);
}

template <class Visitor, MaybeConst<CostRecord> S>
void fields(Visitor& visit, S& record) {
  visit("schema", record.schema);
  visit("tool_version", record.tool_version);
  visit("commit", record.commit);
  visit("command_line", record.command_line);
  visit("model", record.model);
  visit("source", record.source);
  visit.choice("phase", record.phase, kPhases);
  visit("dtype", record.dtype);
  visit("cache_dtype", record.cache_dtype);
  visit("batch", record.batch);
  visit("seq", record.seq);
  visit("machine", record.machine);
  visit("visible_pairs", record.visible_pairs);
  visit("variants", record.variants);
}

}  // namespace attest
