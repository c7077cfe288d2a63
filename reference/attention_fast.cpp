// SPDX-License-Identifier: Apache-2.0
#include "reference/attention_fast.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/alibi.hpp"
#include "reference/backward_fast.hpp"
#include "reference/rope_alone.hpp"
#include "reference/row_kind.hpp"
#include "reference/row_terms.hpp"
#include "reference/tolerance.hpp"

namespace attest {
namespace {

/// 1/sqrt(D) in double and what that leaves, from the residual 1 - D s^2 (exact in the fma).
void set_scale(const AttentionProblem& problem, ScoreRules& rules) {
  rules.scale = effective_scale(problem);
  rules.scale_low = 0;
  if (problem.scale || problem.head_dim == 0) return;
  const auto dim = static_cast<double>(problem.head_dim);
  const double product = dim * rules.scale;
  const double product_low = std::fma(dim, rules.scale, -product);
  const double residual = std::fma(-product, rules.scale, 1.0) - product_low * rules.scale;
  rules.scale_low = rules.scale * residual / 2;
}

ScoreRules rules_of(const AttentionProblem& problem, const AttentionInputs& inputs) {
  ScoreRules rules;
  set_scale(problem, rules);
  rules.softcap = problem.softcap;
  rules.alibi = problem.alibi != AlibiKind::none;
  rules.alibi_inside = problem.alibi_inside_softcap;
  rules.bias = inputs.bias.present;
  rules.rope = problem.rope != RopePairing::none;
  rules.finite_mask = -limits(problem.dtype).max_finite / 2;
  return rules;
}

void reserve(const OracleCall& call, Workspace& work) {
  const auto keys = static_cast<std::size_t>(call.problem.kv_len);
  const auto channels = static_cast<std::size_t>(call.problem.v_head_dim);
  work.row.reserve(keys);
  work.terms.reserve(keys);
  work.sums.reserve(channels);
  work.tile.stride = keys + kMaxLanes;  // a block of keys writes up to 31 columns too many
  for (Buffer<double>* buffer :
       {&work.tile.dot, &work.tile.dot_low, &work.tile.abs_dot, &work.tile.square_dot,
        &work.tile.rope_abs, &work.tile.rope_square})
    buffer->reserve(kTileRows * work.tile.stride);
}

/// Takes the row's keys out of a row of the tile; zeros behind them as far as a vector reaches.
void gather(const Buffer<double>& tile_row, std::size_t offset, const RowScores& row,
            std::size_t first_key, std::size_t lanes, Buffer<double>& out) {
  const double* in = tile_row.data() + offset;
  const auto first = static_cast<std::size_t>(row.key[0]);
  if (static_cast<std::size_t>(row.key[row.n - 1]) - first + 1 == row.n)
    std::copy_n(in + (first - first_key), row.n, out.data());
  else
    for (std::size_t x = 0; x < row.n; ++x)
      out[x] = in[static_cast<std::size_t>(row.key[x]) - first_key];
  std::fill_n(out.data() + row.n, lanes, 0.0);
}

void fill_distances(const AttentionProblem& problem, const Segment& segment, std::int64_t i,
                    std::size_t lanes, RowScores& row) {
  const std::int64_t query_position = qpos(segment, i);
  for (std::size_t x = 0; x < row.n; ++x)
    row.alibi[x] = alibi_term(problem.alibi, 1.0, query_position, kpos(segment, row.key[x]));
  std::fill_n(row.alibi.data() + row.n, lanes, 0.0);
}

/// Largest sum over the row's keys of f |v_jc|, looked at where the head as a whole is too large.
double value_load(const OracleCall& call, const Workspace& work) {
  if (work.head.value_load * call.arithmetic.keep_factor < call.arithmetic.profile.max_acc / 4)
    return 0;
  double largest = 0;
  for (std::size_t c = 0; c < work.head.v_channels; ++c) {
    double load = 0;
    for (std::size_t x = 0; x < work.row.n; ++x)
      load += std::fabs(work.head.v_row(work.row.value[x])[c] * work.head.unit[c]);
    largest = std::max(largest, load * call.arithmetic.keep_factor);
  }
  return largest;
}

bool outside_domain(const OracleCall& call, const Workspace& work) {
  const RowScores& row = work.row;
  const PrecisionProfile& profile = call.arithmetic.profile;
  const double dot_load = row.max_abs_dot * std::max(1.0, std::fabs(call.rules.scale));
  const double score = std::max(row.max_score, std::fabs(row.sink));
  if (!inside_domain(dot_load, score, value_load(call, work), profile.max_acc)) return true;
  return profile.max_score > 0 && row.max_score > profile.max_score;
}

/// A bias of -inf is added to a score that was computed: where that overflows the accumulator, a
/// kernel has Inf - Inf, whatever else the row holds.
bool hidden_score_overflows(const OracleCall& call, const Rows& rows, const RowPlace& place,
                            std::size_t tile_row, const Workspace& work) {
  if (!work.row.hidden_by_bias) return false;
  const double* abs_dot = work.tile.abs_dot.data() + tile_row * work.tile.stride;
  const Segment& segment = rows.of_query(place.i);
  double largest = 0;
  for (std::int64_t j = segment.k0; j < segment.k1; ++j)
    if (bias_at(call.inputs, place.b, place.h, place.i, j) ==
            -std::numeric_limits<double>::infinity() &&
        visible(call.problem, call.inputs, rows, place.b, place.h, place.i, j))
      largest = std::max(largest, abs_dot[static_cast<std::size_t>(j) - work.tile.first_key]);
  const double dot_load = largest * std::max(1.0, std::fabs(call.rules.scale));
  return !inside_domain(dot_load, 0, 0, call.arithmetic.profile.max_acc);
}

/// A row of finite mask values alone is judged by the hull of its v, not by its scores; but where
/// q.k overflows the accumulator, a kernel has Inf in place of the mask value.
bool masked_score_overflows(const OracleCall& call, std::size_t tile_row, const Workspace& work) {
  const double* abs_dot = work.tile.abs_dot.data() + tile_row * work.tile.stride;
  double largest = 0;
  for (std::size_t x = 0; x < work.row.n; ++x)
    largest =
        std::max(largest, abs_dot[static_cast<std::size_t>(work.row.key[x]) - work.tile.first_key]);
  const double dot_load = largest * std::max(1.0, std::fabs(call.rules.scale));
  return !inside_domain(dot_load, 0, 0, call.arithmetic.profile.max_acc);
}

/// F = 1/(1 - p_drop) and what the double leaves of it.
void set_keep_factor(const AttentionProblem& problem, OracleCall& call) {
  if (!(problem.dropout_p > 0)) return;
  const double kept = 1 - problem.dropout_p;
  const double kept_low = (1 - kept) - problem.dropout_p;
  call.keep_high = 1 / kept;
  const double residual = std::fma(-call.keep_high, kept, 1.0) - call.keep_high * kept_low;
  call.keep_low = residual * call.keep_high;
}

/// o of channel c with the dropout factor and the unit put back. False where that lost bits.
bool write_o(const OracleCall& call, const Workspace& work, std::size_t c, std::size_t at,
             ExpectedTensor& o) {
  const double unit = work.head.unit[c];
  double high = work.sums.o[c], low = call.engine.compensated ? work.sums.o_low[c] : 0;
  if (call.arithmetic.has_dropout) {
    const double product = high * call.keep_high;
    const double rest =
        std::fma(high, call.keep_high, -product) + (high * call.keep_low + low * call.keep_high);
    high = product + rest;
    low = rest - (high - product);
  }
  if (!call.engine.compensated) low = 0;  // noise: the radius knows more than it does
  o.value[at] = high * unit;
  o.low[at] = low * unit;
  return o.value[at] / unit == high && o.low[at] / unit == low;
}

void write_values(const OracleCall& call, const RowPlace& place, Workspace& work,
                  Expected& expected) {
  const RowError error = row_error(call.engine, call.rules, call.arithmetic.head_dim, work.row);
  call.engine.sum_values(work.row, work.head, work.sums);
  const std::size_t channels = work.head.v_channels;
  for (std::size_t c = 0; c < channels; ++c) {
    const std::size_t at = place.index * channels + c;
    const bool exact = write_o(call, work, c, at, expected.o);
    expected.o.radius[at] = radius_o(call.engine, error, work.sums, work.head.max_abs_v[c], c,
                                     call.arithmetic.keep_factor * work.head.unit[c], !exact);
  }
  expected.lse.value[place.index] = work.row.lse;
  expected.lse.low[place.index] = work.row.lse_low;
  expected.lse.radius[place.index] = error.lse;
}

RowSums write_tolerances(const OracleCall& call, const RowPlace& place, Workspace& work,
                         Expected& expected) {
  RowSums sums = row_terms(call.arithmetic, work.row, work.terms);
  find_groups(call.arithmetic, work.row, work.terms, sums, work.groups);
  channel_sums(call.arithmetic, work.row, work.terms, work.groups, work.head, work.sums);
  const std::size_t channels = work.head.v_channels;
  for (std::size_t c = 0; c < channels; ++c) {
    const std::size_t at = place.index * channels + c;
    const double factor = call.arithmetic.keep_factor * work.head.unit[c];
    const Tolerance tolerance = tolerance_o(call.arithmetic, sums, work.sums, c, factor);
    expected.o.t_mixed[at] = tolerance.mixed;
    expected.o.t_stat[at] = tolerance.stat;
    if (call.options.temperature) expected.temperature[at] = work.sums.along_scale[c] * factor;
  }
  const Tolerance tolerance = tolerance_lse(call.arithmetic, sums);
  expected.lse.t_mixed[place.index] = tolerance.mixed;
  expected.lse.t_stat[place.index] = tolerance.stat;
  expected.vagueness[place.index] = sums.max_p_delta;
  return sums;
}

void gather_row(const OracleCall& call, const Segment& segment, const RowPlace& place,
                std::size_t tile_row, Workspace& work) {
  const TileScores& tile = work.tile;
  RowScores& row = work.row;
  const std::size_t offset = tile_row * tile.stride, lanes = call.engine.lanes;
  const bool with_squares = call.options.tolerance;
  gather(tile.dot, offset, row, tile.first_key, lanes, row.s);
  gather(tile.abs_dot, offset, row, tile.first_key, lanes, row.abs_dot);
  if (with_squares) gather(tile.square_dot, offset, row, tile.first_key, lanes, row.square_dot);
  if (call.engine.compensated) gather(tile.dot_low, offset, row, tile.first_key, lanes, row.s_low);
  if (call.rules.rope) {
    gather(tile.rope_abs, offset, row, tile.first_key, lanes, row.rope_abs);
    if (with_squares) gather(tile.rope_square, offset, row, tile.first_key, lanes, row.rope_square);
  }
  if (call.rules.bias) std::fill_n(row.bias.data() + row.n, lanes, 0.0);
  if (call.rules.alibi) fill_distances(call.problem, segment, place.i, lanes, row);
}

/// The rows of the forward pass go on into the backward pass, where there is one.
struct Pass {
  const OracleCall& call;
  const Rows& rows;
  BackwardOracle* backward;
};

void give_up(const Pass& pass, const RowPlace& place, Expected& expected) {
  write_unjudged(pass.call, place, expected);
  if (pass.backward) pass.backward->spoil(pass.rows, place, expected);
}

/// Rows that need no arithmetic; false for the others.
bool judge_special_row(const Pass& pass, const RowPlace& place, const Workspace& work,
                       Expected& expected) {
  const OracleCall& call = pass.call;
  switch (expected.rows[place.index]) {
    case RowKind::padding: write_padding(call, place, expected); return true;
    case RowKind::empty: write_empty(call, pass.rows, place, expected); return true;
    case RowKind::empty_sink:
      write_empty_sink(call, place, expected);
      if (pass.backward) pass.backward->add_empty_sink(place);
      return true;
    case RowKind::lowest_only:
      write_lowest_only(call, place, work, expected);
      if (pass.backward) pass.backward->spoil(pass.rows, place, expected);
      return true;
    case RowKind::unspecified: give_up(pass, place, expected); return true;
    case RowKind::ordinary:
    case RowKind::outside_domain: break;
  }
  return false;
}

void judge_row(const Pass& pass, const RowPlace& place, std::size_t tile_row, bool query_is_finite,
               Workspace& work, Expected& expected) {
  const OracleCall& call = pass.call;
  const Rows& rows = pass.rows;
  RowKind& kind = expected.rows[place.index];
  kind = collect_keys(call, rows, place, query_is_finite, work);
  if ((kind != RowKind::padding && kind != RowKind::unspecified &&
       hidden_score_overflows(call, rows, place, tile_row, work)) ||
      (kind == RowKind::lowest_only && masked_score_overflows(call, tile_row, work))) {
    kind = RowKind::outside_domain;
    give_up(pass, place, expected);
    return;
  }
  if (judge_special_row(pass, place, work, expected)) return;
  gather_row(call, rows.of_query(place.i), place, tile_row, work);
  call.engine.weigh(call.rules, work.row);
  if (outside_domain(call, work)) {
    kind = RowKind::outside_domain;
    give_up(pass, place, expected);
    return;
  }
  write_values(call, place, work, expected);
  RowSums sums;
  if (call.options.tolerance) sums = write_tolerances(call, place, work, expected);
  if (!pass.backward) return;
  const ForwardFindings findings{work.row,  work.terms,  call.options.tolerance ? &sums : nullptr,
                                 work.sums, work.groups, work.head};
  pass.backward->add_row(rows, place, findings, expected);
}

/// Query rows of one head, kTileRows at a time.
void judge_head(const Pass& pass, std::int64_t b, std::int64_t h, Workspace& work,
                Expected& expected) {
  const OracleCall& call = pass.call;
  const Rows& rows = pass.rows;
  const AttentionProblem& problem = call.problem;
  const RotationTable* rotations = call.rules.rope ? &work.query_rotations : nullptr;
  for (std::int64_t first = 0; first < problem.q_len; first += kTileRows) {
    const std::int64_t count = std::min<std::int64_t>(kTileRows, problem.q_len - first);
    std::int64_t first_key = problem.kv_len, end_key = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      if (!rows.real_query(i)) continue;
      first_key = std::min(first_key, rows.of_query(i).k0);
      end_key = std::max(end_key, rows.of_query(i).k1);
    }
    load_queries(problem, call.inputs, b, h, first, count, rotations, call.engine.rotate,
                 work.queries);
    work.tile.first_key = static_cast<std::size_t>(first_key) / 8 * 8;
    if (first_key < end_key)
      call.engine.score_tile(work.head.k, work.queries, static_cast<std::size_t>(end_key),
                             call.options.tolerance, work.tile);
    for (std::int64_t i = first; i < first + count; ++i) {
      const auto tile_row = static_cast<std::size_t>(i - first);
      const RowPlace place{
          b, h, i, static_cast<std::size_t>((b * problem.num_heads + h) * problem.q_len + i)};
      judge_row(pass, place, tile_row, work.queries.finite[tile_row], work, expected);
    }
  }
}

void allocate(const AttentionProblem& problem, const OracleOptions& options, Expected& expected) {
  const auto rows = static_cast<std::size_t>(problem.batch * problem.num_heads * problem.q_len);
  const std::size_t elements = rows * static_cast<std::size_t>(problem.v_head_dim);
  const auto size = [](ExpectedTensor& tensor, std::size_t count) {
    for (std::vector<double>* part :
         {&tensor.value, &tensor.low, &tensor.radius, &tensor.t_mixed, &tensor.t_stat})
      part->assign(count, 0);
  };
  size(expected.o, elements);
  size(expected.lse, rows);
  expected.rows.assign(rows, RowKind::ordinary);
  expected.vagueness.assign(rows, 0);
  if (options.temperature) expected.temperature.assign(elements, 0);
  expected.has_tolerance = options.tolerance;
}

}  // namespace

Expected expect(const AttentionProblem& problem, const AttentionInputs& inputs,
                const PrecisionProfile& profile, const OracleOptions& options) {
  if (problem.operation == Operation::rope) return expect_rope(problem, inputs, profile);
  thread_local Workspace work;
  OracleCall call{problem,
                  inputs,
                  options,
                  problem.dtype == DType::f64 ? double_double_engine() : double_engine(),
                  arithmetic_of(problem, profile),
                  rules_of(problem, inputs)};
  set_keep_factor(problem, call);
  Expected expected;
  allocate(problem, options, expected);
  if (inputs.d_o.present) allocate_gradients(inputs, expected);
  if (expected.rows.empty()) return expected;
  reserve(call, work);
  std::unique_ptr<BackwardOracle> backward;
  if (inputs.d_o.present) backward = make_backward_oracle(call);

  const std::int64_t group = problem.num_heads / problem.num_kv_heads;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    if (call.rules.rope) {
      fill_rotations(problem, rows, true, work.query_rotations);
      fill_rotations(problem, rows, false, work.key_rotations);
    }
    for (std::int64_t kv = 0; kv < problem.num_kv_heads; ++kv) {
      load_head(problem, inputs, rows, b, kv, call.rules.rope ? &work.key_rotations : nullptr,
                call.engine.rotate, work.head);
      if (backward) backward->begin_head(rows, b, kv);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        if (call.rules.alibi) call.rules.slope = slope_at(inputs, b, h);
        judge_head({call, rows, backward.get()}, b, h, work, expected);
      }
      if (backward) backward->end_head(rows, b, kv, expected);
    }
  }
  if (backward) backward->finish(expected);
  return expected;
}

std::string oracle_simd_target() { return double_engine().target; }

}  // namespace attest
