// SPDX-License-Identifier: Apache-2.0
#include "properties/law_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"
#include "reference/audit.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

/// Most (query, key, channel) triples of a law's problem. One in twenty is that large, and costs a
/// few milliseconds.
constexpr std::int64_t kMostTriples = 100'000;
constexpr std::int64_t kFewChannels = 8;
constexpr std::int64_t kFewRows = 16;
/// Two roundings of double arithmetic, relative to what is added.
constexpr double kOwnRounding = 0x1p-52;

/// The entries of one axis that are listed, in that order.
template <class T>
void pick_axis(Dense<T>& tensor, int axis, const std::vector<std::int64_t>& entries) {
  if (!tensor.present) return;
  auto shape = tensor.shape;
  const auto place = static_cast<std::size_t>(axis);
  shape[place] = std::ssize(entries);
  Dense<T> picked(shape);
  std::array<std::int64_t, 4> at{};
  std::size_t flat = 0;
  for (at[0] = 0; at[0] < shape[0]; ++at[0])
    for (at[1] = 0; at[1] < shape[1]; ++at[1])
      for (at[2] = 0; at[2] < shape[2]; ++at[2])
        for (at[3] = 0; at[3] < shape[3]; ++at[3]) {
          auto from = at;
          from[place] = entries[static_cast<std::size_t>(at[place])];
          picked.values[flat++] = tensor.at(from[0], from[1], from[2], from[3]);
        }
  tensor = std::move(picked);
}

/// The same where an axis of extent 1 broadcasts, and so stays.
template <class T>
void pick_stored(Dense<T>& tensor, int axis, const std::vector<std::int64_t>& entries) {
  if (tensor.shape[static_cast<std::size_t>(axis)] != 1) pick_axis(tensor, axis, entries);
}

void pick_list(std::vector<std::int64_t>& list, const std::vector<std::int64_t>& entries) {
  if (list.empty()) return;
  std::vector<std::int64_t> picked;
  for (const std::int64_t entry : entries) picked.push_back(list[static_cast<std::size_t>(entry)]);
  list = std::move(picked);
}

template <class T>
Axes axes_of(const Dense<T>& tensor, const AttentionProblem& p) {
  return {tensor.shape[0] == p.batch, tensor.shape[1] == p.num_heads, tensor.shape[2] == p.q_len,
          tensor.shape[3] == p.kv_len};
}

BiasKind bias_kind(const AttentionProblem& problem, const Dense<double>& bias) {
  if (!bias.present) return BiasKind::none;
  BiasKind kind = BiasKind::normal;
  for (const double value : bias.values) {
    if (std::isinf(value)) return BiasKind::neg_inf;
    if (is_finite_mask(problem.dtype, value)) kind = BiasKind::lowest;
  }
  return kind;
}

SinkKind sink_kind(const Dense<double>& sink) {
  if (!sink.present) return SinkKind::none;
  return std::any_of(sink.values.begin(), sink.values.end(),
                     [](double value) { return std::isinf(value); })
             ? SinkKind::mixed_inf
             : SinkKind::normal;
}

DType output_type(const AttentionProblem& problem, Output output) {
  return output == Output::o || problem.dtype == DType::f64 ? problem.dtype : DType::f32;
}

}  // namespace

Restatement restate(const AttentionProblem& problem, const AttentionInputs& inputs) {
  return {problem, inputs};
}

void pick_keys(Restatement& call, const std::vector<std::int64_t>& keys) {
  pick_axis(call.inputs.k, 2, keys);
  pick_axis(call.inputs.v, 2, keys);
  pick_stored(call.inputs.bias, 3, keys);
  pick_stored(call.inputs.mask, 3, keys);
  pick_axis(call.inputs.keep, 3, keys);
}

void pick_queries(Restatement& call, const std::vector<std::int64_t>& queries) {
  pick_axis(call.inputs.q, 2, queries);
  pick_stored(call.inputs.bias, 2, queries);
  pick_stored(call.inputs.mask, 2, queries);
  pick_axis(call.inputs.keep, 2, queries);
}

void pick_batches(Restatement& call, const std::vector<std::int64_t>& batches) {
  AttentionInputs& inputs = call.inputs;
  for (auto* tensor : {&inputs.q, &inputs.k, &inputs.v}) pick_axis(*tensor, 0, batches);
  pick_axis(inputs.keep, 0, batches);
  pick_stored(inputs.bias, 0, batches);
  pick_stored(inputs.slopes, 0, batches);
  pick_stored(inputs.mask, 0, batches);
  pick_stored(inputs.blocks, 0, batches);
  AttentionProblem& p = call.problem;
  for (auto* list :
       {&p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k, &p.q_offset, &p.prefix_len})
    pick_list(*list, batches);
}

void pick_heads(Restatement& call, const std::vector<std::int64_t>& heads) {
  AttentionInputs& inputs = call.inputs;
  for (auto* tensor : {&inputs.q, &inputs.slopes, &inputs.sink}) pick_axis(*tensor, 1, heads);
  pick_axis(inputs.keep, 1, heads);
  pick_stored(inputs.bias, 1, heads);
  pick_stored(inputs.mask, 1, heads);
  pick_stored(inputs.blocks, 1, heads);
}

void pick_kv_heads(Restatement& call, const std::vector<std::int64_t>& kv_heads) {
  pick_axis(call.inputs.k, 1, kv_heads);
  pick_axis(call.inputs.v, 1, kv_heads);
}

void pick_channels(Dense<double>& tensor, const std::vector<std::int64_t>& channels) {
  const Dense<double> from = tensor;
  const std::size_t width = channels.size();
  for (std::size_t n = 0; n < tensor.values.size(); ++n)
    tensor.values[n] = from.values[n - n % width + static_cast<std::size_t>(channels[n % width])];
}

void round_slopes(Dense<double>& slopes) {
  for (double& slope : slopes.values) {
    if (slope == 0) continue;
    const double exponent = std::round(std::log2(std::fabs(slope)));
    slope = std::copysign(std::exp2(std::clamp(exponent, -8.0, 0.0)), slope);
  }
}

std::vector<std::int64_t> rows_between(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(last - first));
  std::iota(list.begin(), list.end(), first);
  return list;
}

std::vector<std::int64_t> counting(std::int64_t count) { return rows_between(0, count); }

std::int64_t chosen(const AttentionProblem& problem, std::uint64_t tag, std::int64_t count) {
  const std::uint64_t bits = mix(problem.seed, tag, 0x6c6177u, 0, 0, 0);
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(count));
}

std::vector<std::int64_t> shuffled(const AttentionProblem& problem, std::uint64_t tag,
                                   std::int64_t count) {
  std::vector<std::int64_t> list = counting(count);
  for (std::int64_t n = count; n > 1; --n)
    std::swap(
        list[static_cast<std::size_t>(n - 1)],
        list[static_cast<std::size_t>(chosen(problem, tag + static_cast<std::uint64_t>(n), n))]);
  if (count > 1 && std::is_sorted(list.begin(), list.end()))
    std::rotate(list.begin(), list.begin() + 1, list.end());
  return list;
}

AttentionProblem law_sized(AttentionProblem p, const Declaration& declaration) {
  store_batches_apart(p, declaration);
  for (auto* extent : {&p.batch, &p.q_len, &p.kv_len, &p.v_head_dim})
    *extent = std::max<std::int64_t>(*extent, 1);
  // Lengths say the most: they give way last.
  while (triples(p) > kMostTriples) {
    if (p.batch > 2) {
      p.batch = 2;
    } else if (p.num_kv_heads > 2) {
      p.num_heads = p.num_heads / p.num_kv_heads * 2;
      p.num_kv_heads = 2;
    } else if (std::max(p.head_dim, p.v_head_dim) > kFewChannels) {
      for (auto* channels : {&p.head_dim, &p.v_head_dim})
        if (*channels > kFewChannels) *channels = std::max(*channels / 2, kFewChannels);
    } else if (std::max(p.q_len, p.kv_len) > kFewRows) {
      std::int64_t& longer = p.q_len > p.kv_len ? p.q_len : p.kv_len;
      longer = std::max(longer / 2, kFewRows);
    } else {
      break;
    }
  }
  p.want_lse = declaration.has(Feature::lse);
  return make_legal(std::move(p), declaration);
}

void drop_positions(AttentionProblem& problem) {
  problem.base = Base::full;
  problem.prefix_len.clear();
  problem.window_left = problem.window_right = -1;
  problem.global_tokens = 0;
  problem.alibi = AlibiKind::none;
  problem.slopes = SlopesKind::standard;
  problem.literal.slopes.clear();
  problem.alibi_inside_softcap = false;
  problem.rope = RopePairing::none;
  if (problem.bias == BiasKind::t5) problem.bias = BiasKind::normal;
}

bool has_positions(const AttentionProblem& problem) {
  return problem.base != Base::full || problem.window_left >= 0 || problem.window_right >= 0 ||
         problem.alibi != AlibiKind::none || problem.rope != RopePairing::none ||
         problem.bias == BiasKind::t5;
}

void drop_ranges(AttentionProblem& problem) {
  for (auto* list : {&problem.seqlens_q, &problem.seqlens_k, &problem.left_pad_q,
                     &problem.left_pad_k, &problem.cu_seqlens_q, &problem.cu_seqlens_k})
    list->clear();
}

bool has_ranges(const AttentionProblem& problem) {
  return !problem.seqlens_q.empty() || !problem.seqlens_k.empty() || !problem.left_pad_q.empty() ||
         !problem.left_pad_k.empty() || !problem.cu_seqlens_q.empty();
}

bool settle(Restatement& call, const Declaration& declaration) {
  const AttentionInputs& inputs = call.inputs;
  AttentionProblem& p = call.problem;
  p.literal = {};
  p.data = Family::gaussian;
  p.v_data.reset();
  p.batch = inputs.q.shape[0];
  p.num_heads = inputs.q.shape[1];
  p.q_len = inputs.q.shape[2];
  p.head_dim = inputs.q.shape[3];
  p.num_kv_heads = inputs.k.shape[1];
  p.kv_len = inputs.k.shape[2];
  p.v_head_dim = inputs.v.shape[3];
  p.bias = bias_kind(p, inputs.bias);
  p.bias_axes = inputs.bias.present ? axes_of(inputs.bias, p) : Axes{};
  p.t5_bidirectional = true;
  p.t5_buckets = AttentionProblem{}.t5_buckets;
  p.t5_max_distance = AttentionProblem{}.t5_max_distance;
  p.mask = inputs.mask.present ? MaskKind::random : MaskKind::none;
  p.mask_axes = inputs.mask.present ? axes_of(inputs.mask, p) : Axes{};
  p.sink = sink_kind(inputs.sink);
  p.slopes = p.alibi == AlibiKind::none   ? SlopesKind::standard
             : inputs.slopes.shape[0] > 1 ? SlopesKind::per_batch
                                          : SlopesKind::random;
  if (p.blocks) {
    p.block_axes.b = inputs.blocks.shape[0] == p.batch;
    p.block_axes.h = inputs.blocks.shape[1] == p.num_heads;
  }
  return !problem_error(p) && !not_declared(declaration, p);
}

double allowed_of(const LawCall& call, Output output, std::size_t flat) {
  const ExpectedTensor& tensor = output == Output::o ? call.expected.o : call.expected.lse;
  return call.generic ? tolerance_of(tensor, flat) : tensor.t_mixed[flat];
}

std::optional<CaseResult> first_call(CaseContext& context, const AttentionProblem& problem,
                                     LawCall& call) {
  call.problem = problem;
  call.seen = context.first(problem);
  if (auto result = judge_call(call.seen, context.declaration(), problem)) return result;
  call.expected = context.expected(problem);
  call.generic = is_generic(problem);
  return std::nullopt;
}

std::optional<CaseResult> further_call(CaseContext& context, const LawCall& base,
                                       const Restatement& restated, bool generic, LawCall& call) {
  call.problem = restated.problem;
  call.seen = context.call(restated.problem, restated.inputs);
  if (auto result = judge_call(call.seen, context.declaration(), restated.problem)) return result;
  call.expected = *context.expected(restated.problem, restated.inputs);
  call.generic = generic && base.generic;
  return std::nullopt;
}

void LawJudge::add(Output output, std::size_t flat, double base, double restated, double allowed,
                   bool counts) {
  if (!std::isfinite(allowed)) return;
  if (counts) ++result_.elements_compared;
  const double error = std::fabs(restated - base);
  if (restated == base || error <= allowed) return;
  ++result_.elements_failed;
  const double ratio =
      std::isnan(error) ? std::numeric_limits<double>::infinity() : error / allowed;
  if (!(ratio > worst_)) return;
  worst_ = ratio;
  const std::int64_t failed = result_.elements_failed, compared = result_.elements_compared;
  result_ = element_failure(problem_, output, flat, base, restated, Reason::law_broken, "");
  result_.elements_failed = failed;
  result_.elements_compared = compared;
  result_.worst->tolerance = allowed;
  result_.worst->ratio = ratio;
  result_.detail = fmt::format(
      "{} gives another {}: {} where {} follows from the call as it was (allowed {:.3g})", what_,
      element_name(problem_, output, flat), print_number(restated), print_number(base), allowed);
}

CaseResult LawJudge::finish() && {
  if (result_.elements_compared == 0 && result_.verdict == Verdict::pass)
    return {.verdict = Verdict::not_judged, .detail = "no row that the law speaks of"};
  return std::move(result_);
}

void compare_same(const LawCall& base, const LawCall& other, const Same& same, LawJudge& judge) {
  const AttentionProblem& p = base.problem;
  const auto width = static_cast<std::size_t>(p.v_head_dim);
  const auto other_width = static_cast<std::size_t>(other.problem.v_head_dim);
  const auto finite = [&](const LawCall& call, Output output, std::size_t flat) {
    const double value = (output == Output::o ? call.expected.o : call.expected.lse).value[flat];
    return std::fabs(value) < limits(output_type(call.problem, output)).max_finite / 2;
  };
  for (std::size_t row = 0; row < num_rows(p); ++row) {
    const std::int64_t answer =
        same.row_of.empty() ? static_cast<std::int64_t>(row) : same.row_of[row];
    if (answer < 0) continue;
    const auto other_row = static_cast<std::size_t>(answer);
    if (base.expected.rows[row] != RowKind::ordinary ||
        other.expected.rows[other_row] != RowKind::ordinary)
      continue;
    const bool counts = base.telling(row) && other.telling(other_row);
    for (std::size_t c = 0; same.compares_o && c < width; ++c) {
      const std::size_t flat = row * width + c;
      const std::size_t other_flat =
          other_row * other_width +
          (same.channel_of.empty() ? c : static_cast<std::size_t>(same.channel_of[c]));
      if (!finite(base, Output::o, flat) || !finite(other, Output::o, other_flat)) continue;
      const double restated = same.o_factor * other.seen.o[other_flat];
      double allowed = allowed_of(base, Output::o, flat) +
                       std::fabs(same.o_factor) * allowed_of(other, Output::o, other_flat) +
                       kOwnRounding * std::fabs(base.expected.o.value[flat]);
      if (same.bends)
        allowed += std::fabs(base.expected.o.value[flat] -
                             same.o_factor * other.expected.o.value[other_flat]);
      judge.add(Output::o, flat, base.seen.o[flat], restated, allowed, counts);
    }
    if (!same.compares_lse || base.seen.lse.empty() || other.seen.lse.empty()) continue;
    if (!finite(base, Output::lse, row) || !finite(other, Output::lse, other_row)) continue;
    const double shift = same.lse_shift.empty() ? 0 : same.lse_shift[row];
    double allowed = allowed_of(base, Output::lse, row) +
                     allowed_of(other, Output::lse, other_row) +
                     kOwnRounding * (std::fabs(base.expected.lse.value[row]) + std::fabs(shift));
    if (same.bends)
      allowed +=
          std::fabs(base.expected.lse.value[row] + shift - other.expected.lse.value[other_row]);
    judge.add(Output::lse, row, base.seen.lse[row], other.seen.lse[other_row] - shift, allowed,
              counts);
  }
}

CaseResult check_same(CaseContext& context, const AttentionProblem& problem, Restatement restated,
                      const Same& same, bool generic, const std::string& what) {
  if (!settle(restated, context.declaration())) return not_sayable();
  LawCall base, other;
  if (auto result = first_call(context, problem, base)) return *result;
  if (auto result = further_call(context, base, restated, generic, other)) return *result;
  LawJudge judge(problem, what);
  compare_same(base, other, same, judge);
  return std::move(judge).finish();
}

CaseResult not_sayable() {
  return {.verdict = Verdict::not_judged,
          .detail = "the law cannot be said with what is declared, or not exactly"};
}

}  // namespace attest
