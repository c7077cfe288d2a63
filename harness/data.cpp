// SPDX-License-Identifier: Apache-2.0
#include "harness/data.hpp"

#include <cmath>
#include <limits>

#include "attest/names.hpp"
#include "harness/families.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sinks and slopes are f32, f64 for an f64 kernel.
DType statistic_type(const AttentionProblem& problem) {
  return problem.dtype == DType::f64 ? DType::f64 : DType::f32;
}

template <class T>
void take_literal(Dense<T>& tensor, const std::vector<double>& values) {
  for (std::size_t n = 0; n < tensor.values.size() && n < values.size(); ++n)
    tensor.values[n] = static_cast<T>(values[n]);
}

/// An array of the stored axes, each element value(b, h, i, j).
template <class T, class Value>
Dense<T> filled(std::array<std::int64_t, 4> shape, Value value) {
  Dense<T> tensor(shape);
  auto out = tensor.values.begin();
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i)
        for (std::int64_t j = 0; j < shape[3]; ++j) *out++ = static_cast<T>(value(b, h, i, j));
  return tensor;
}

std::array<std::int64_t, 4> stored_shape(const AttentionProblem& problem, const Axes& axes) {
  return {axes.b ? problem.batch : 1, axes.h ? problem.num_heads : 1, axes.q ? problem.q_len : 1,
          axes.k ? problem.kv_len : 1};
}

std::uint64_t element_bits(const AttentionProblem& problem, Stream stream, std::int64_t b,
                           std::int64_t h, std::int64_t i, std::int64_t j) {
  return absorb(row_state(problem.seed, stream, b, h, i), static_cast<std::uint64_t>(j));
}

bool mask_value(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t i,
                std::int64_t j) {
  const auto bits = [&] { return element_bits(problem, Stream::mask, b, h, i, j); };
  switch (problem.mask) {
    case MaskKind::random: return bits() % 2 == 0;
    case MaskKind::sparse: return bits() % 8 == 0;
    case MaskKind::dense: return bits() % 16 != 0;
    case MaskKind::all_false: return false;
    case MaskKind::empty_rows: return i % 3 != 2;
    case MaskKind::none:
    case MaskKind::all_true:
    case MaskKind::list: return true;
  }
  return true;
}

double bias_value(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t i,
                  std::int64_t j) {
  const bool hole = element_bits(problem, Stream::bias_hole, b, h, i, j) % 4 == 0;
  if (hole && problem.bias == BiasKind::neg_inf) return -kInfinity;
  if (hole && problem.bias == BiasKind::lowest) return -limits(problem.dtype).max_finite;
  return round_to(problem.dtype, gaussian(element_bits(problem, Stream::bias, b, h, i, j)));
}

/// table[bucket][head] by the positions of sequence b; rows outside their range have position 0,
/// and are never read.
Dense<double> t5_bias(const AttentionProblem& problem) {
  const auto shape = stored_shape(problem, problem.bias_axes);
  Dense<double> tensor(shape);
  auto out = tensor.values.begin();
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    // A stored batch axis of extent 1 with an empty batch has no sequence to take positions from.
    if (problem.batch == 0) break;
    const std::vector<std::int64_t> queries = query_positions(problem, b);
    const std::vector<std::int64_t> keys = key_positions(problem, b);
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (const std::int64_t query : queries)
        for (const std::int64_t key : keys) {
          const std::int64_t bucket = t5_bucket(key - query, problem.t5_buckets,
                                                problem.t5_max_distance, problem.t5_bidirectional);
          const std::uint64_t bits = element_bits(problem, Stream::t5_table, bucket, h, 0, 0);
          *out++ = round_to(problem.dtype, gaussian(bits));
        }
  }
  return tensor;
}

Dense<double> make_bias(const AttentionProblem& problem) {
  if (problem.bias == BiasKind::t5) return t5_bias(problem);
  const auto shape = stored_shape(problem, problem.bias_axes);
  auto tensor = filled<double>(shape, [&](auto... at) { return bias_value(problem, at...); });
  if (problem.bias == BiasKind::list) take_literal(tensor, problem.literal.bias);
  return tensor;
}

Dense<double> make_slopes(const AttentionProblem& problem) {
  const bool listed = problem.slopes == SlopesKind::list;
  const auto heads = static_cast<std::size_t>(problem.num_heads);
  const bool per_batch =
      problem.slopes == SlopesKind::per_batch || (listed && problem.literal.slopes.size() != heads);
  const DType type = statistic_type(problem);
  auto tensor = filled<double>({per_batch ? problem.batch : 1, problem.num_heads, 1, 1},
                               [&](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t) {
                                 if (problem.slopes == SlopesKind::standard)
                                   return round_to(type, alibi_slope(h, problem.num_heads));
                                 // In (0, 1], a multiple of 2^-24: exact in f32.
                                 const std::uint64_t bits =
                                     element_bits(problem, Stream::slopes, b, h, 0, 0);
                                 return static_cast<double>((bits >> 40) + 1) * 0x1p-24;
                               });
  if (listed) take_literal(tensor, problem.literal.slopes);
  return tensor;
}

Dense<double> make_sink(const AttentionProblem& problem) {
  auto tensor =
      filled<double>({1, problem.num_heads, 1, 1},
                     [&](std::int64_t, std::int64_t h, std::int64_t, std::int64_t) -> double {
                       if (problem.sink == SinkKind::large) return 20;
                       if (problem.sink == SinkKind::mixed_inf && h % 2 == 1) return -kInfinity;
                       return round_to(statistic_type(problem),
                                       gaussian(element_bits(problem, Stream::sink, 0, h, 0, 0)));
                     });
  if (problem.sink == SinkKind::list) take_literal(tensor, problem.literal.sink);
  return tensor;
}

Dense<std::uint8_t> make_mask(const AttentionProblem& problem) {
  auto tensor = filled<std::uint8_t>(stored_shape(problem, problem.mask_axes),
                                     [&](auto... at) { return mask_value(problem, at...); });
  if (problem.mask == MaskKind::list) take_literal(tensor, problem.literal.mask);
  return tensor;
}

Dense<std::uint8_t> make_blocks(const AttentionProblem& problem) {
  const auto count = [](std::int64_t rows, std::int64_t block) {
    return rows / block + (rows % block != 0);
  };
  auto tensor = filled<std::uint8_t>(
      {problem.block_axes.b ? problem.batch : 1, problem.block_axes.h ? problem.num_heads : 1,
       count(problem.q_len, problem.block_q), count(problem.kv_len, problem.block_k)},
      [&](auto... at) { return element_bits(problem, Stream::blocks, at...) % 4 != 0; });
  take_literal(tensor, problem.literal.blocks);
  return tensor;
}

Dense<std::uint8_t> make_keep(const AttentionProblem& problem) {
  auto tensor = filled<std::uint8_t>(
      {problem.batch, problem.num_heads, problem.q_len, problem.kv_len}, [&](auto... at) {
        return fraction(element_bits(problem, Stream::keep, at...)) >= problem.dropout_p;
      });
  take_literal(tensor, problem.literal.keep);
  return tensor;
}

/// Rows on pages that all sequences share are those of the first.
void share_pages(const AttentionProblem& problem, AttentionInputs& inputs) {
  const std::int64_t rows = shared_pages(problem) * problem.page_size;
  for (Dense<double>* tensor : {&inputs.k, &inputs.v})
    for (std::int64_t b = 1; b < problem.batch; ++b)
      for (std::int64_t g = 0; g < problem.num_kv_heads; ++g)
        for (std::int64_t j = 0; j < rows; ++j)
          for (std::int64_t c = 0; c < tensor->shape[3]; ++c)
            tensor->at(b, g, j, c) = tensor->at(0, g, j, c);
}

Dense<double> make_d_lse(const AttentionProblem& problem) {
  auto tensor =
      filled<double>({problem.batch, problem.num_heads, problem.q_len, 1}, [&](auto... at) {
        return round_to(statistic_type(problem),
                        gaussian(element_bits(problem, Stream::d_lse, at...)));
      });
  take_literal(tensor, problem.literal.d_lse);
  return tensor;
}

}  // namespace

std::uint64_t mix(std::uint64_t seed, std::uint64_t tensor, std::uint64_t a, std::uint64_t b,
                  std::uint64_t c, std::uint64_t d) {
  std::uint64_t state = 0;
  for (const std::uint64_t coordinate : {seed, tensor, a, b, c, d})
    state = absorb(state, coordinate);
  return state;
}

std::string_view name(Family family) { return enum_name(family); }

bool is_generic(const AttentionProblem& problem) {
  const auto generic = [](Family family) {
    return family == Family::gaussian || family == Family::uniform;
  };
  if (!generic(problem.data) || !generic(problem.v_data.value_or(problem.data))) return false;
  if (problem.operation == Operation::backward &&
      (!generic(problem.d_o_data) || problem.d_o_layout == Layout::broadcast))
    return false;
  // The scores of normal q and k have the standard deviation |scale| sqrt(D). Below 1/8 the weights
  // of a row are nearly equal, and round to the same few bf16 numbers: their errors are common
  // (scale = 0 behind a sink: z = 0.56 for an honest kernel).
  return std::fabs(effective_scale(problem)) * std::sqrt(static_cast<double>(problem.head_dim)) >=
         0.125;
}

AttentionInputs make_inputs(const AttentionProblem& problem) {
  AttentionInputs inputs;
  fill_qkv(problem, inputs);
  take_literal(inputs.q, problem.literal.q);
  take_literal(inputs.k, problem.literal.k);
  take_literal(inputs.v, problem.literal.v);
  share_pages(problem, inputs);
  if (problem.bias != BiasKind::none) inputs.bias = make_bias(problem);
  if (problem.alibi != AlibiKind::none) inputs.slopes = make_slopes(problem);
  if (problem.sink != SinkKind::none) inputs.sink = make_sink(problem);
  if (problem.mask != MaskKind::none) inputs.mask = make_mask(problem);
  if (problem.blocks) inputs.blocks = make_blocks(problem);
  if (problem.dropout_p > 0) inputs.keep = make_keep(problem);
  if (problem.operation == Operation::backward) {
    fill_d_o(problem, inputs);
    take_literal(inputs.d_o, problem.literal.d_o);
    if (problem.d_lse) inputs.d_lse = make_d_lse(problem);
  }
  return inputs;
}

}  // namespace attest
