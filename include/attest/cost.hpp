// SPDX-License-Identifier: Apache-2.0
// The shapes of whole models and of machines, and what a model costs on one: plain data for
// `attest cost`. The formulas are in bench/cost/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attest {

/// A decoder-only Transformer as its configuration file describes it (bench/models/*.json).
struct ModelShape {
  std::string name;
  std::string source;  ///< where the numbers come from
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t ffn = 0;    ///< width of the feed-forward layer, of one expert
  std::string activation;  ///< gelu: two matrices; swiglu, geglu: three
  std::int64_t experts = 1, experts_per_token = 1;
  std::string norm;  ///< rms_norm: a scale for each channel; layer_norm: and a shift
  std::int64_t norms_per_layer = 2;
  std::int64_t vocab = 0;
  bool tied_head = false;              ///< the head is the embedding's matrix
  std::int64_t learned_positions = 0;  ///< 0: RoPE
  bool qkv_bias = false, out_bias = false, ffn_bias = false;
  std::vector<std::int64_t> windows;  ///< keys that a query sees, itself among them, of the layers
                                      ///< in turn; 0: all
  bool sinks = false;                 ///< a learned logit for each head
  double softcap = 0;                 ///< of the attention logits; 0: none
};

/// What the roofline needs to know of a machine (bench/machines/*.json).
struct MachineShape {
  std::string name;
  std::string source;                             ///< the datasheet, or "measured"
  double memory_bytes = 0;                        ///< of the device
  double bytes_per_second = 0;                    ///< from its memory
  std::map<std::string, double> flop_per_second;  ///< by dtype, dense
};

inline constexpr const char* kCostSchema = "attest.cost/1";

/// Floating-point operations: a multiply-add counts 2.
struct CostFlops {
  double matrix = 0, softmax = 0, other = 0;
};

/// One kind of layer, summed over the layers of the model.
struct CostPart {
  std::string name;
  std::string formula;  ///< of `matrix`, in the model's words
  CostFlops flops;
  double parameters = 0;
  double bytes = 0;        ///< moved at least: parameters and activations, once
  double saved_bytes = 0;  ///< activations that a backward pass needs
};

/// Scores, softmax and weighted sum, by one way of computing them; all layers but for extra_bytes.
struct CostAttention {
  std::string implementation;
  CostFlops flops;
  double bytes = 0;
  double extra_bytes = 0;         ///< at the peak of one layer, beyond its tensors
  double saved_bytes = 0;         ///< beyond q, k, v and o
  double intensity = 0;           ///< FLOP/byte
  std::optional<double> seconds;  ///< by the roofline, where a machine was given
  std::string bound;              ///< "compute", "memory"; "" without a machine
};

/// The model with one number of key/value heads.
struct CostVariant {
  std::string heads;  ///< mha, gqa, mqa
  std::int64_t kv_heads = 0;
  double parameters = 0;
  double cache_bytes_per_token = 0;
  double cache_bytes = 0;  ///< of all sequences
  std::vector<CostPart> parts;
  std::vector<CostAttention> attention;
};

struct CostRecord {
  std::string schema = kCostSchema;
  std::string tool_version;
  std::string commit;
  std::string command_line;
  std::string model;
  std::string source;
  std::string
      phase;  ///< of a model: prefill, decode, train; of one call: forward, backward, decode
  std::string dtype;
  std::string cache_dtype;
  std::int64_t batch = 0, seq = 0;
  std::string machine;                ///< "": none
  double visible_pairs = 0;           ///< of a query and a key, over batch, heads and layers
  std::vector<CostVariant> variants;  ///< the model's own first
};

}  // namespace attest
