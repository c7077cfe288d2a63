// SPDX-License-Identifier: Apache-2.0
#include "tools/bridge/call_message.hpp"

#include <cstring>
#include <optional>

#include "attest/tensor.hpp"
#include "tools/tensor_elements.hpp"

namespace attest {
namespace {

WireType wire_type(DLDataType type) {
  if (type.code == kDLInt) return WireType::i32;
  if (type.code == kDLUInt) return WireType::u8;
  switch (dtype_of(type).value_or(DType::f32)) {
    case DType::f64: return WireType::f64;
    case DType::f32: return WireType::f32;
    case DType::f16: return WireType::f16;
    case DType::bf16: return WireType::bf16;
  }
  return WireType::f32;
}

WireShape form_of(const DLTensor& tensor) {
  return {wire_type(tensor.dtype), {tensor.shape, tensor.shape + tensor.ndim}};
}

WireTensor gather(const DLTensor& tensor) {
  WireTensor wire{form_of(tensor), ""};
  const std::size_t size = size_of(wire.form.type);
  wire.bytes.resize(wire.form.count() * size);
  for_each_element(tensor, [&](std::size_t flat, const std::byte* from) {
    std::memcpy(wire.bytes.data() + flat * size, from, size);
  });
  return wire;
}

const char* base_name(std::int32_t base) {
  return base == ATTEST_BASE_CAUSAL ? "causal" : base == ATTEST_BASE_PREFIX ? "prefix" : "full";
}
const char* align_name(std::int32_t align) {
  return align == ATTEST_ALIGN_TOP_LEFT   ? "top_left"
         : align == ATTEST_ALIGN_Q_OFFSET ? "q_offset"
                                          : "bottom_right";
}
const char* alibi_name(std::int32_t alibi) {
  constexpr const char* kNames[] = {"none", "absolute", "signed", "key_anchored"};
  return kNames[alibi];
}
const char* rope_name(std::int32_t rope) {
  return rope == ATTEST_ROPE_INTERLEAVED ? "interleaved"
         : rope == ATTEST_ROPE_HALF      ? "half"
                                         : "none";
}
const char* cache_name(std::int32_t cache) {
  return cache == ATTEST_CACHE_RING ? "ring" : cache == ATTEST_CACHE_PAGED ? "paged" : "contiguous";
}

/// Scalars, of which those that a feature needs stand there only where it is used.
void put_scalars(const attest_attention& p, int num_threads, WorkerRequest& request) {
  const auto put = [&](const char* key, WireScalar value) {
    request.attributes.emplace_back(key, std::move(value));
  };
  put("dtype", std::string(name(wire_type(p.q->dtype))));
  put("scale", p.scale);
  put("base", std::string(base_name(p.base)));
  put("causal", p.base == ATTEST_BASE_CAUSAL);
  put("align", std::string(align_name(p.align)));
  if (p.window_left >= 0 || p.window_right >= 0) {
    put("window_left", p.window_left);
    put("window_right", p.window_right);
    put("global_tokens", p.global_tokens);
  }
  if (p.softcap != 0) put("softcap", p.softcap);
  if (p.dropout_p != 0 || p.keep) put("dropout_p", p.dropout_p);
  if (p.blocks) {
    put("block_q", p.block_q);
    put("block_k", p.block_k);
  }
  if (p.alibi != ATTEST_ALIBI_NONE) {
    put("alibi", std::string(alibi_name(p.alibi)));
    put("alibi_inside_softcap", p.alibi_inside_softcap != 0);
  }
  if (p.rope != ATTEST_ROPE_NONE) {
    put("rope", std::string(rope_name(p.rope)));
    put("rope_dim", p.rope_dim);
    put("rope_position", p.rope_position);
    put("rope_base", p.rope_base);
    put("rope_scale", p.rope_scale);
    put("rope_ntk", p.rope_ntk);
  }
  if (p.k_cache) {
    put("cache", std::string(cache_name(p.cache)));
    put("cache_rotated", p.cache_rotated != 0);
    put("num_splits", p.num_splits);
  }
  put("num_threads", static_cast<std::int64_t>(num_threads));
}

std::vector<NamedTensor> attention_inputs(const attest_attention& p) {
  return {{"q", p.q},
          {"k", p.k},
          {"v", p.v},
          {"bias", p.bias},
          {"mask", p.mask},
          {"blocks", p.blocks},
          {"keep", p.keep},
          {"alibi_slopes", p.alibi_slopes},
          {"sink", p.sink},
          {"seqlens_q", p.seqlens_q},
          {"seqlens_k", p.seqlens_k},
          {"left_pad_q", p.left_pad_q},
          {"left_pad_k", p.left_pad_k},
          {"cu_seqlens_q", p.cu_seqlens_q},
          {"cu_seqlens_k", p.cu_seqlens_k},
          {"q_offset", p.q_offset},
          {"prefix_len", p.prefix_len},
          {"rope_cos", p.rope_cos},
          {"rope_sin", p.rope_sin},
          {"k_cache", p.k_cache},
          {"v_cache", p.v_cache},
          {"cache_len", p.cache_len},
          {"block_table", p.block_table}};
}

}  // namespace

void put_tensors(const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
                 WorkerRequest& request) {
  for (const NamedTensor& input : inputs)
    if (input.tensor) request.tensors[input.name] = gather(*input.tensor);
  for (const NamedTensor& output : outputs)
    if (output.tensor) request.outputs[output.name] = form_of(*output.tensor);
}

std::vector<NamedTensor> attention_outputs(const std::string& operation,
                                           const attest_attention& p) {
  if (operation == "backward")
    return {{"d_q", p.d_q},       {"d_k", p.d_k},       {"d_v", p.d_v},
            {"d_bias", p.d_bias}, {"d_sink", p.d_sink}, {"d_alibi_slopes", p.d_alibi_slopes}};
  return {{"o", p.o}, {"lse", p.lse}, {"k_cache", p.k_cache}, {"v_cache", p.v_cache}};
}

WorkerRequest attention_request(const std::string& operation, const attest_attention& problem,
                                int num_threads) {
  WorkerRequest request;
  request.operation = operation;
  put_scalars(problem, num_threads, request);
  std::vector<NamedTensor> inputs = attention_inputs(problem);
  if (operation == "backward")
    for (const NamedTensor& made :
         {NamedTensor{"o", problem.o}, NamedTensor{"lse", problem.lse},
          NamedTensor{"d_o", problem.d_o}, NamedTensor{"d_lse", problem.d_lse}})
      inputs.push_back(made);
  put_tensors(inputs, attention_outputs(operation, problem), request);
  return request;
}

void take_outputs(const WorkerAnswer& answer, const std::vector<NamedTensor>& outputs) {
  for (const NamedTensor& output : outputs) {
    if (!output.tensor) continue;
    const std::string& bytes = answer.outputs.at(output.name);
    const std::size_t size = output.tensor->dtype.bits / 8u;
    for_each_element(*output.tensor, [&](std::size_t flat, std::byte* to) {
      std::memcpy(to, bytes.data() + flat * size, size);
    });
  }
}

}  // namespace attest
