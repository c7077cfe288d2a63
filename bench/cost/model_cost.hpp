// SPDX-License-Identifier: Apache-2.0
// What a whole model costs, from its shape: the layers around attention, and attention by each of
// the ways of bench/cost/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/cost.hpp"
#include "attest/dtype.hpp"
#include "attest/problem.hpp"
#include "attest/result.hpp"
#include "bench/cost/attention_cost.hpp"

namespace attest {

enum class Phase : std::uint8_t {
  prefill,  ///< `seq` tokens of each sequence at once, into an empty cache; one token comes out
  decode,   ///< one token of each sequence, the last of `seq`
  train,    ///< forward and backward of all tokens, and AdamW
};

/// Of a key/value cache, also narrower than the model: int8 and int4 without their scales.
struct CacheType {
  std::string name;
  double bytes = 2;  ///< of one element
};
std::optional<CacheType> parse_cache_type(std::string_view name);

struct CostQuery {
  Phase phase = Phase::prefill;
  DType dtype = DType::bf16;
  CacheType cache{"bf16", 2};
  std::int64_t batch = 1, seq = 1;
  std::vector<std::string> heads;  ///< of "mha", "gqa", "mqa"; empty: the model's own
  std::vector<const AttentionCostModel*> ways;
  std::optional<MachineShape> machine;
};

/// The parameters of the model with this many key/value heads.
double parameters_of(const ModelShape& model, std::int64_t kv_heads);

/// 2 layers B T Hkv D s: keys and values of every token, windows or not.
double cache_bytes(const ModelShape& model, std::int64_t kv_heads, std::int64_t batch,
                   std::int64_t seq, double element_bytes);

/// The attention call of layer `layer`.
AttentionProblem attention_of(const ModelShape& model, std::int64_t layer, std::int64_t kv_heads,
                              const CostQuery& query);

/// Everything but where it comes from (tool, commit, command line). The error is one line.
Result<CostRecord> model_cost(const ModelShape& model, const CostQuery& query);

/// One call instead of a model: a record that has attention alone. Of the query only ways and
/// machine count.
Result<CostRecord> call_cost(const AttentionProblem& problem, const CostQuery& query);

/// Seconds by the roofline, max(FLOPs / peak, bytes / bandwidth), and which of the two it is;
/// nothing where the machine does not say how fast it is with this dtype.
struct RooflineTime {
  double seconds = 0;
  bool compute_bound = false;
};
std::optional<RooflineTime> roofline(const MachineShape& machine, DType dtype, double flops,
                                     double bytes);

}  // namespace attest
