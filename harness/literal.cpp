// SPDX-License-Identifier: Apache-2.0
#include "harness/literal.hpp"

#include <algorithm>
#include <array>

#include "harness/data.hpp"
#include "harness/legal.hpp"
#include "harness/simpler.hpp"

namespace attest {
namespace {

constexpr std::int64_t kMostValues = 64;

using Shape = std::array<std::int64_t, 4>;

Shape stored_shape(const AttentionProblem& p, const Axes& axes) {
  return {axes.b ? p.batch : 1, axes.h ? p.num_heads : 1, axes.q ? p.q_len : 1,
          axes.k ? p.kv_len : 1};
}

Shape block_shape(const AttentionProblem& p) {
  const auto count = [](std::int64_t rows, std::int64_t block) {
    return rows / block + (rows % block != 0);
  };
  return {p.block_axes.b ? p.batch : 1, p.block_axes.h ? p.num_heads : 1, count(p.q_len, p.block_q),
          count(p.kv_len, p.block_k)};
}

Shape slope_shape(const AttentionProblem& p) {
  const bool shared = static_cast<std::int64_t>(p.literal.slopes.size()) == p.num_heads;
  return {shared ? 1 : p.batch, p.num_heads, 1, 1};
}

template <class T>
void cut(std::vector<T>& values, const Shape& from, const Shape& to) {
  if (values.empty() || from == to) return;
  std::vector<T> kept;
  for (const std::int64_t extent : from)
    if (extent == 0) return;
  Shape at{};
  for (at[0] = 0; at[0] < to[0]; ++at[0])
    for (at[1] = 0; at[1] < to[1]; ++at[1])
      for (at[2] = 0; at[2] < to[2]; ++at[2])
        for (at[3] = 0; at[3] < to[3]; ++at[3]) {
          std::int64_t flat = 0;
          for (std::size_t axis = 0; axis < 4; ++axis)
            flat = flat * from[axis] + std::min(at[axis], from[axis] - 1);
          kept.push_back(values[static_cast<std::size_t>(flat)]);
        }
  values = std::move(kept);
}

template <class T>
std::vector<double> as_doubles(const Dense<T>& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

bool fits(const Dense<double>& tensor) { return std::ssize(tensor.values) <= kMostValues; }
bool fits(const Dense<std::uint8_t>& tensor) { return std::ssize(tensor.values) <= kMostValues; }

void list_side_tensors(AttentionProblem& p, const AttentionInputs& inputs) {
  if (p.bias != BiasKind::none && p.bias != BiasKind::list && fits(inputs.bias)) {
    p.bias = BiasKind::list;
    p.literal.bias = as_doubles(inputs.bias);
  }
  const bool plain_mask = p.mask == MaskKind::all_true || p.mask == MaskKind::all_false;
  if (p.mask != MaskKind::none && !plain_mask && fits(inputs.mask)) {
    p.mask = MaskKind::list;
    p.literal.mask = as_doubles(inputs.mask);
  }
  if (p.sink != SinkKind::none && fits(inputs.sink)) {
    p.sink = SinkKind::list;
    p.literal.sink = as_doubles(inputs.sink);
  }
  if (p.alibi != AlibiKind::none && p.slopes != SlopesKind::standard && fits(inputs.slopes)) {
    p.slopes = SlopesKind::list;
    p.literal.slopes = as_doubles(inputs.slopes);
  }
  if (p.blocks && fits(inputs.blocks)) p.literal.blocks = as_doubles(inputs.blocks);
  if (p.dropout_p > 0 && fits(inputs.keep)) p.literal.keep = as_doubles(inputs.keep);
  if (p.operation != Operation::backward) return;
  if (fits(inputs.d_o)) {
    p.d_o_data = Family::list;
    p.literal.d_o = as_doubles(inputs.d_o);
  }
  if (p.d_lse && fits(inputs.d_lse)) p.literal.d_lse = as_doubles(inputs.d_lse);
}

}  // namespace

std::optional<AttentionProblem> listed(const AttentionProblem& problem, bool all) {
  const auto& p = problem;
  const bool v_stays = p.v_data.has_value() && !all;
  // Checked in two steps, so that nothing large is generated.
  for (const std::int64_t extent : {p.batch, p.num_heads, p.q_len, p.kv_len, p.head_dim})
    if (extent > kMostValues) return std::nullopt;
  const std::int64_t values =
      p.batch * p.num_heads * p.q_len * p.head_dim +
      p.batch * p.num_kv_heads * p.kv_len *
          (p.head_dim + (v_stays ? 0 : std::min(p.v_head_dim, kMostValues + 1)));
  if (values > kMostValues) return std::nullopt;

  const AttentionInputs inputs = make_inputs(p);
  AttentionProblem result = p;
  result.data = Family::list;
  result.literal.q = as_doubles(inputs.q);
  result.literal.k = as_doubles(inputs.k);
  if (v_stays) {
    if (p.v_data != Family::list) result.literal.v.clear();
  } else {
    result.v_data.reset();
    result.literal.v = as_doubles(inputs.v);
  }
  if (all) list_side_tensors(result, inputs);
  result = mend(std::move(result));
  if (result.data != Family::list) return std::nullopt;
  return result;
}

AttentionProblem with_literal_data(const AttentionProblem& problem) {
  return listed(problem, true).value_or(problem);
}

AttentionProblem with_cut_literals(const AttentionProblem& from, AttentionProblem edited) {
  const auto& to = edited;
  if (edited.positions.size() == from.positions.size())
    cut(edited.positions, {1, 1, from.batch, from.q_len}, {1, 1, to.batch, to.q_len});
  Literal& values = edited.literal;
  cut(values.q, {from.batch, from.num_heads, from.q_len, from.head_dim},
      {to.batch, to.num_heads, to.q_len, to.head_dim});
  cut(values.k, {from.batch, from.num_kv_heads, from.kv_len, from.head_dim},
      {to.batch, to.num_kv_heads, to.kv_len, to.head_dim});
  cut(values.v, {from.batch, from.num_kv_heads, from.kv_len, from.v_head_dim},
      {to.batch, to.num_kv_heads, to.kv_len, to.v_head_dim});
  cut(values.bias, stored_shape(from, from.bias_axes), stored_shape(to, to.bias_axes));
  cut(values.mask, stored_shape(from, from.mask_axes), stored_shape(to, to.mask_axes));
  cut(values.sink, {1, from.num_heads, 1, 1}, {1, to.num_heads, 1, 1});
  const Shape slopes = slope_shape(from);
  cut(values.slopes, slopes, {std::min(slopes[0], to.batch), to.num_heads, 1, 1});
  cut(values.blocks, block_shape(from), block_shape(to));
  cut(values.d_o, {from.batch, from.num_heads, from.q_len, from.v_head_dim},
      {to.batch, to.num_heads, to.q_len, to.v_head_dim});
  cut(values.d_lse, {from.batch, from.num_heads, from.q_len, 1},
      {to.batch, to.num_heads, to.q_len, 1});
  cut(values.keep, {from.batch, from.num_heads, from.q_len, from.kv_len},
      {to.batch, to.num_heads, to.q_len, to.kv_len});
  return edited;
}

}  // namespace attest
