// SPDX-License-Identifier: Apache-2.0
#include "bench/cost/model_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "attest/case_line.hpp"
#include "attest/names.hpp"

namespace attest {

namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

/// How often a formula of one forward pass counts: backward of a product are two.
double passes(Phase phase) { return phase == Phase::train ? 3 : 1; }

/// The sizes that every part is made of.
struct Sizes {
  double tokens;       ///< that go through the layers
  double head_tokens;  ///< that go through the head
  double layers, hidden, q_width, kv_width, element;
};

Sizes sizes_of(const ModelShape& model, std::int64_t kv_heads, const CostQuery& query) {
  const double batch = as_double(query.batch);
  const double tokens = query.phase == Phase::decode ? batch : batch * as_double(query.seq);
  return {tokens,
          query.phase == Phase::train ? tokens : batch,
          as_double(model.layers),
          as_double(model.hidden),
          as_double(model.heads * model.head_dim),
          as_double(kv_heads * model.head_dim),
          as_double(static_cast<std::int64_t>(size_of(query.dtype)))};
}

/// out = in W (+ b), for `tokens` rows.
struct Linear {
  double in, out;
  bool bias;
  double parameters() const { return in * out + (bias ? out : 0); }
  double products(double tokens) const { return 2 * tokens * in * out; }
};

void add_linear(CostPart& part, const Linear& linear, double tokens, double copies,
                double used_copies, double element) {
  part.flops.matrix += used_copies * linear.products(tokens);
  if (linear.bias) part.flops.other += used_copies * tokens * linear.out;
  part.parameters += copies * linear.parameters();
  // No more experts are read than tokens ask for.
  part.bytes +=
      element * (std::min(copies, used_copies * std::max(tokens, 1.0)) * linear.parameters() +
                 used_copies * tokens * (linear.in + linear.out));
  part.saved_bytes += element * used_copies * tokens * linear.in;
}

CostPart projections(const ModelShape& model, const Sizes& n) {
  CostPart part{"attention projections", "2 T (2 C H D + 2 C Hkv D)", {}, 0, 0, 0};
  for (const Linear& linear :
       {Linear{n.hidden, n.q_width, model.qkv_bias}, Linear{n.hidden, n.kv_width, model.qkv_bias},
        Linear{n.hidden, n.kv_width, model.qkv_bias}, Linear{n.q_width, n.hidden, model.out_bias}})
    add_linear(part, linear, n.tokens, 1, 1, n.element);
  part.saved_bytes -= 2 * n.element * n.tokens * n.hidden;  // q, k and v share their input
  if (model.sinks) part.parameters += as_double(model.heads);
  if (model.learned_positions == 0)  // RoPE of q and k: 6 a pair
    part.flops.other += 3 * n.tokens * (n.q_width + n.kv_width);
  part.flops.other += n.tokens * n.hidden;  // residual
  return part;
}

bool is_gated(const ModelShape& model) { return model.activation != "gelu"; }

CostPart feed_forward(const ModelShape& model, const Sizes& n) {
  const double width = as_double(model.ffn), experts = as_double(model.experts),
               used = as_double(model.experts_per_token);
  const std::string often = model.experts > 1 ? fmt::format("{} x ", model.experts_per_token) : "";
  CostPart part{fmt::format("feed-forward ({})", model.activation),
                often + (is_gated(model) ? "2 T 3 C F" : "2 T 2 C F"),
                {},
                0,
                0,
                0};
  const Linear up{n.hidden, width, model.ffn_bias}, down{width, n.hidden, model.ffn_bias};
  add_linear(part, up, n.tokens, experts, used, n.element);
  if (is_gated(model)) {
    add_linear(part, up, n.tokens, experts, used, n.element);
    part.saved_bytes -= n.element * used * n.tokens * n.hidden;  // the same input
  }
  add_linear(part, down, n.tokens, experts, used, n.element);
  // gelu by tanh: 8; silu: 4; the product of the gate: 1; the residual: 1.
  const double activation = model.activation == "swiglu" ? 4 : 8;
  part.flops.other +=
      used * n.tokens * width * (activation + is_gated(model)) + n.tokens * n.hidden;
  part.saved_bytes += n.element * used * n.tokens * width * (is_gated(model) ? 2 : 1);
  if (model.experts > 1) {
    const Linear router{n.hidden, experts, model.ffn_bias};
    add_linear(part, router, n.tokens, 1, 1, n.element);
    part.saved_bytes -= n.element * n.tokens * n.hidden;
    part.flops.other += 3 * n.tokens * used;  // softmax of the chosen
    part.flops.other += 2 * n.tokens * n.hidden * (used - 1) + n.tokens * n.hidden;
  }
  return part;
}

/// mean of squares, its root, two products: 4 a channel; LayerNorm with mean and shift: 7.
CostPart norms(const ModelShape& model, const Sizes& n, double count) {
  const bool centred = model.norm == "layer_norm";
  CostPart part{model.norm, "", {}, 0, 0, 0};
  part.flops.other = count * n.tokens * n.hidden * (centred ? 7 : 4);
  part.parameters = count * n.hidden * (centred ? 2 : 1);
  part.bytes = n.element * (part.parameters + 2 * count * n.tokens * n.hidden);
  part.saved_bytes = n.element * count * n.tokens * n.hidden;
  return part;
}

CostPart embedding(const ModelShape& model, const Sizes& n) {
  CostPart part{"embedding", "", {}, 0, 0, 0};
  part.parameters = n.hidden * as_double(model.vocab + model.learned_positions);
  const double tables = model.learned_positions > 0 ? 2 : 1;
  part.flops.other = (tables - 1) * n.tokens * n.hidden;
  part.bytes = n.element * n.tokens * n.hidden * (tables + 1);
  return part;
}

CostPart head(const ModelShape& model, const Sizes& n, Phase phase) {
  CostPart part{phase == Phase::prefill ? "head (last token)" : "head", "2 T C V", {}, 0, 0, 0};
  const Linear linear{n.hidden, as_double(model.vocab), false};
  add_linear(part, linear, n.head_tokens, 1, 1, n.element);
  if (model.tied_head) part.parameters = 0;
  if (phase == Phase::train) {  // softmax and cross-entropy of the logits
    part.flops.softmax = 4 * n.head_tokens * as_double(model.vocab);
    part.saved_bytes += n.element * n.head_tokens * as_double(model.vocab);
  }
  return part;
}

CostPart times(double n, CostPart part) {
  part.flops = {n * part.flops.matrix, n * part.flops.softmax, n * part.flops.other};
  part.parameters *= n, part.bytes *= n, part.saved_bytes *= n;
  return part;
}

/// A step of AdamW: 12 operations a parameter on f32 moments; reads the gradient and reads and
/// writes parameter and both moments.
CostPart optimiser(double parameters, double element) {
  CostPart part{"AdamW", "", {}, 0, 0, 0};
  part.flops.other = 12 * parameters;
  part.bytes = parameters * (element + 2 * (4 + 4 + 4));
  return part;
}

std::vector<CostPart> parts_of(const ModelShape& model, std::int64_t kv_heads,
                               const CostQuery& query) {
  const Sizes n = sizes_of(model, kv_heads, query);
  std::vector<CostPart> parts{embedding(model, n), times(n.layers, projections(model, n)),
                              times(n.layers, feed_forward(model, n)),
                              norms(model, n, n.layers * as_double(model.norms_per_layer) + 1),
                              head(model, n, query.phase)};
  for (CostPart& part : parts) {
    const double often = passes(query.phase);
    part.flops = {often * part.flops.matrix, often * part.flops.softmax, often * part.flops.other};
    part.bytes *= often;
    if (query.phase != Phase::train) part.saved_bytes = 0;
  }
  if (query.phase == Phase::train)
    parts.push_back(optimiser(parameters_of(model, kv_heads), n.element));
  return parts;
}

/// What a reader of the record sees of one way, with the time by the roofline.
CostAttention row_of(const AttentionCostModel& way, const AttentionCost& cost,
                     const std::optional<MachineShape>& machine, DType dtype) {
  CostAttention row;
  row.implementation = way.name;
  row.flops = {cost.flops.matrix, cost.flops.softmax, cost.flops.other};
  row.bytes = cost.bytes;
  row.extra_bytes = cost.extra_bytes;
  row.saved_bytes = cost.saved_bytes;
  row.intensity = cost.bytes > 0 ? cost.flops.total() / cost.bytes : 0;
  if (!machine) return row;
  if (const auto time = roofline(*machine, dtype, cost.flops.total(), cost.bytes)) {
    row.seconds = time->seconds;
    row.bound = time->compute_bound ? "compute" : "memory";
  }
  return row;
}

/// One way, over the layers of the model; `often` is how many have each problem.
Result<CostAttention> attention_by(const AttentionCostModel& way, const CostQuery& query,
                                   const std::vector<std::pair<AttentionProblem, double>>& layers) {
  AttentionCost sum;
  for (const auto& [problem, often] : layers) {
    std::vector<AttentionProblem> calls{problem};
    if (query.phase == Phase::train) {
      calls.push_back(problem);
      calls.back().operation = Operation::backward;
    }
    for (const AttentionProblem& call : calls) {
      const Result<AttentionCost> cost = attention_cost(way, call);
      if (!cost) return Error{cost.error()};
      sum.flops += often * cost->flops;
      sum.bytes += often * cost->bytes;
      sum.extra_bytes = std::max(sum.extra_bytes, cost->extra_bytes);
      if (query.phase == Phase::train) sum.saved_bytes += often * cost->saved_bytes;
    }
  }
  return row_of(way, sum, query.machine, query.dtype);
}

std::string word_of(std::int64_t heads, std::int64_t kv_heads) {
  return kv_heads == heads ? "mha" : kv_heads == 1 ? "mqa" : "gqa";
}

/// Key/value heads that a word asks for. A model without groups gets those of 8, as most have that
/// have any.
std::int64_t heads_of(const ModelShape& model, const std::string& word) {
  if (word == "mha") return model.heads;
  if (word == "mqa") return 1;
  if (model.kv_heads != model.heads && model.kv_heads != 1) return model.kv_heads;
  return std::max<std::int64_t>(model.heads / 8, 1);
}

std::vector<std::int64_t> variants_of(const ModelShape& model, const CostQuery& query) {
  std::vector<std::int64_t> all{model.kv_heads};
  for (const std::string& word : query.heads)
    if (const std::int64_t heads = heads_of(model, word);
        std::find(all.begin(), all.end(), heads) == all.end())
      all.push_back(heads);
  return all;
}

/// The problems that layers have, and how many have each.
std::vector<std::pair<AttentionProblem, double>> layers_of(const ModelShape& model,
                                                           std::int64_t kv_heads,
                                                           const CostQuery& query) {
  std::vector<std::pair<AttentionProblem, double>> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const AttentionProblem problem = attention_of(model, layer, kv_heads, query);
    const auto same = std::find_if(layers.begin(), layers.end(),
                                   [&](const auto& known) { return known.first == problem; });
    if (same == layers.end())
      layers.emplace_back(problem, 1);
    else
      ++same->second;
  }
  return layers;
}

}  // namespace

std::optional<CacheType> parse_cache_type(std::string_view name) {
  if (name == "int8" || name == "fp8") return CacheType{std::string(name), 1};
  if (name == "int4") return CacheType{std::string(name), 0.5};
  if (const auto dtype = parse_dtype(name))
    return CacheType{std::string(name), static_cast<double>(size_of(*dtype))};
  return std::nullopt;
}

double parameters_of(const ModelShape& model, std::int64_t kv_heads) {
  CostQuery query;
  const Sizes n = sizes_of(model, kv_heads, query);
  return embedding(model, n).parameters + n.layers * projections(model, n).parameters +
         n.layers * feed_forward(model, n).parameters +
         norms(model, n, n.layers * as_double(model.norms_per_layer) + 1).parameters +
         head(model, n, query.phase).parameters;
}

double cache_bytes(const ModelShape& model, std::int64_t kv_heads, std::int64_t batch,
                   std::int64_t seq, double element_bytes) {
  return 2 * as_double(model.layers) * as_double(batch) * as_double(seq) * as_double(kv_heads) *
         as_double(model.head_dim) * element_bytes;
}

AttentionProblem attention_of(const ModelShape& model, std::int64_t layer, std::int64_t kv_heads,
                              const CostQuery& query) {
  AttentionProblem problem;
  problem.dtype = query.dtype;
  problem.batch = query.batch;
  problem.num_heads = model.heads;
  problem.num_kv_heads = kv_heads;
  problem.q_len = problem.kv_len = query.seq;
  problem.head_dim = problem.v_head_dim = model.head_dim;
  problem.base = Base::causal;
  problem.softcap = model.softcap;
  if (query.phase == Phase::decode) {
    problem.operation = Operation::decode;
    problem.q_len = 1;
  }
  const auto turn = static_cast<std::size_t>(layer) % model.windows.size();
  if (const std::int64_t window = model.windows[turn]; window > 0) {
    problem.window_left = window - 1;  // a query sees itself
    problem.window_right = 0;
  }
  // RoPE is counted with the projections, and a sink is one exp a row.
  return problem;
}

Result<CostRecord> model_cost(const ModelShape& model, const CostQuery& query) {
  if (model.learned_positions > 0 && query.seq > model.learned_positions)
    return Error{fmt::format("{} has {} positions, fewer than the {} tokens of a sequence",
                             model.name, model.learned_positions, query.seq)};
  CostRecord record;
  record.model = model.name;
  record.source = model.source;
  record.phase = query.phase == Phase::prefill  ? "prefill"
                 : query.phase == Phase::decode ? "decode"
                                                : "train";
  record.dtype = name(query.dtype);
  record.cache_dtype = query.cache.name;
  record.batch = query.batch;
  record.seq = query.seq;
  if (query.machine) record.machine = query.machine->name;
  for (const auto& [problem, often] : layers_of(model, model.kv_heads, query)) {
    if (const auto wrong = problem_error(problem)) return Error{*wrong};
    const Result<PairCounts> counts = count_pairs(problem, PairTile{});
    if (!counts) return Error{counts.error()};
    record.visible_pairs += often * counts->visible;
  }
  for (const std::int64_t kv_heads : variants_of(model, query)) {
    CostVariant variant;
    variant.heads = word_of(model.heads, kv_heads);
    variant.kv_heads = kv_heads;
    variant.parameters = parameters_of(model, kv_heads);
    variant.cache_bytes_per_token = cache_bytes(model, kv_heads, 1, 1, query.cache.bytes);
    variant.cache_bytes = cache_bytes(model, kv_heads, query.batch, query.seq, query.cache.bytes);
    variant.parts = parts_of(model, kv_heads, query);
    const auto layers = layers_of(model, kv_heads, query);
    for (const AttentionCostModel* way : query.ways) {
      Result<CostAttention> attention = attention_by(*way, query, layers);
      if (!attention) return Error{attention.error()};
      variant.attention.push_back(std::move(*attention));
    }
    record.variants.push_back(std::move(variant));
  }
  return record;
}

Result<CostRecord> call_cost(const AttentionProblem& problem, const CostQuery& query) {
  if (problem.operation == Operation::rope)
    return Error{"the rotary embedding alone has no attention"};
  CostRecord record;
  record.model = print_case(problem);
  record.phase = enum_name(problem.operation);
  record.dtype = record.cache_dtype = name(problem.dtype);
  record.batch = problem.batch;
  record.seq = problem.kv_len;
  if (query.machine) record.machine = query.machine->name;
  const Result<PairCounts> counts = count_pairs(problem, PairTile{});
  if (!counts) return Error{counts.error()};
  record.visible_pairs = counts->visible;
  CostVariant variant;
  variant.kv_heads = problem.num_kv_heads;
  variant.heads = word_of(problem.num_heads, problem.num_kv_heads);
  for (const AttentionCostModel* way : query.ways) {
    const Result<AttentionCost> cost = attention_cost(*way, problem);
    if (!cost) return Error{cost.error()};
    variant.attention.push_back(row_of(*way, *cost, query.machine, problem.dtype));
  }
  record.variants.push_back(std::move(variant));
  return record;
}

std::optional<RooflineTime> roofline(const MachineShape& machine, DType dtype, double flops,
                                     double bytes) {
  const auto peak = machine.flop_per_second.find(std::string(name(dtype)));
  if (peak == machine.flop_per_second.end()) return std::nullopt;
  const double compute = flops / peak->second, memory = bytes / machine.bytes_per_second;
  return RooflineTime{std::max(compute, memory), compute >= memory};
}

}  // namespace attest
