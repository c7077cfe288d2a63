// SPDX-License-Identifier: Apache-2.0
#include "reference/definition.hpp"

#include <boost/multiprecision/gmp.hpp>
#include <map>
#include <tuple>

#include "reference/gradients.hpp"
#include "reference/multiprecision.hpp"
#include "reference/t5.hpp"

namespace attest {

template ForwardRow<Mpfr50> forward_row<Mpfr50>(const AttentionProblem&, const AttentionInputs&,
                                                const Rows&, std::int64_t, std::int64_t,
                                                std::int64_t);
template ForwardRow<Mpfr100> forward_row<Mpfr100>(const AttentionProblem&, const AttentionInputs&,
                                                  const Rows&, std::int64_t, std::int64_t,
                                                  std::int64_t);
template ForwardRow<BinFloat50> forward_row<BinFloat50>(const AttentionProblem&,
                                                        const AttentionInputs&, const Rows&,
                                                        std::int64_t, std::int64_t, std::int64_t);

namespace {

template <Number T>
ExactNumber exact_number(const T& x, bool with_digits) {
  const auto [high, low] = split(x);
  return {high, low, with_digits ? x.str(20, std::ios_base::fmtflags{}) : std::string{}};
}

template <Number T>
ExactRow exact_row(const ForwardRow<T>& row, bool with_digits) {
  ExactRow exact;
  exact.kind = row.kind;
  for (const T& x : row.o) exact.o.push_back(exact_number(x, with_digits));
  exact.lse = exact_number(row.lse, with_digits);
  return exact;
}

}  // namespace

ExactRow definition_row(const AttentionProblem& problem, const AttentionInputs& inputs,
                        std::int64_t b, std::int64_t h, std::int64_t i, int decimal_digits,
                        bool with_digits) {
  free_caches_with_thread();
  const Rows rows = rows_of(problem, b);
  return decimal_digits <= 50
             ? exact_row(forward_row<Mpfr50>(problem, inputs, rows, b, h, i), with_digits)
             : exact_row(forward_row<Mpfr100>(problem, inputs, rows, b, h, i), with_digits);
}

ExactRow definition_row_second_opinion(const AttentionProblem& problem,
                                       const AttentionInputs& inputs, std::int64_t b,
                                       std::int64_t h, std::int64_t i) {
  return exact_row(forward_row<BinFloat50>(problem, inputs, rows_of(problem, b), b, h, i), true);
}

std::vector<ExactNumber> definition_rope_row(const AttentionProblem& problem,
                                             const AttentionInputs& inputs, std::int64_t b,
                                             std::int64_t h, std::int64_t i) {
  using T = Mpfr50;
  free_caches_with_thread();
  std::vector<Rotation<T>> pairs =
      cached_rotations<T>(rope_parameters(problem), row_position(problem, b, i));
  if (problem.rope_inverse)
    for (Rotation<T>& pair : pairs) pair.sin = -pair.sin;
  std::vector<T> row;
  for (std::int64_t c = 0; c < problem.head_dim; ++c) row.emplace_back(inputs.q.at(b, h, i, c));
  rotate(row, problem.rope, pairs);
  std::vector<ExactNumber> exact;
  for (const T& x : row) exact.push_back(exact_number(x, true));
  return exact;
}

RealTensors<ExactNumber> definition_gradients(const AttentionProblem& problem,
                                              const AttentionInputs& inputs) {
  free_caches_with_thread();
  const RealTensors<Mpfr50> exact = gradients<Mpfr50>(problem, inputs);
  const auto numbers = [](const Dense<Mpfr50>& from) {
    Dense<ExactNumber> to;
    if (!from.present) return to;
    to = Dense<ExactNumber>(from.shape);
    for (std::size_t x = 0; x < from.values.size(); ++x)
      to.values[x] = exact_number(from.values[x], false);
    return to;
  };
  return {numbers(exact.q),    numbers(exact.k),      numbers(exact.v),
          numbers(exact.bias), numbers(exact.slopes), numbers(exact.sink)};
}

RowTrace trace_row(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
                   std::int64_t h, std::int64_t i) {
  using T = Mpfr50;
  free_caches_with_thread();
  const Rows rows = rows_of(problem, b);
  const ForwardRow<T> row = forward_row<T>(problem, inputs, rows, b, h, i);

  RowTrace trace;
  trace.kind = row.kind;
  trace.exact = exact_row(row, true);
  trace.sink = sink_at(inputs, h);
  trace.has_sink = trace.sink != -infinity<double>();
  const bool real_query = rows.real_query(i);
  std::vector<T> q;
  if (real_query) {
    trace.qpos = qpos(rows.of_query(i), i);
    q = positioned_row<T>(problem, inputs.q, b, h, i, trace.qpos);
  }
  const T scale = exact_scale<T>(problem);

  std::size_t next_weight = 0;
  for (std::int64_t j = 0; j < problem.kv_len; ++j) {
    const VisibleFactors factors = visible_factors(problem, inputs, rows, b, h, i, j);
    RowTrace::Key key;
    key.j = j;
    key.base = factors.base;
    key.band = factors.band;
    key.range = factors.range;
    key.segment = factors.segment;
    key.mask = factors.mask;
    key.blocks = factors.blocks;
    key.visible = factors.all() && !bias_hides(inputs, b, h, i, j);
    if (rows.real_key(j)) key.kpos = kpos(rows.of_key(j), j);
    if (factors.range) {  // rows outside their range are never read
      const ScoreTerms<T> terms =
          score_terms<T>(problem, inputs, rows, b, h, i, j, q, trace.qpos, scale);
      key.dot = static_cast<double>(terms.dot);
      key.scaled = static_cast<double>(terms.a);
      key.capped = static_cast<double>(terms.c);
      key.alibi = static_cast<double>(terms.alibi);
      key.bias = static_cast<double>(terms.bias);
      key.score = static_cast<double>(terms.z);
      key.keep_factor = static_cast<double>(keep_factor<T>(problem, inputs, b, h, i, j));
    }
    if (next_weight < row.keys.size() && row.keys[next_weight] == j)
      key.weight = static_cast<double>(row.weights[next_weight++]);
    trace.keys.push_back(key);
  }
  return trace;
}

std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance,
                       bool bidirectional) {
  using Key = std::tuple<std::int64_t, std::int64_t>;
  thread_local std::map<Key, std::vector<std::int64_t>> tables;
  const std::int64_t N = bidirectional ? buckets / 2 : buckets;
  const auto [table, is_new] = tables.try_emplace(Key{N, max_distance});
  if (is_new) table->second = t5_first_distances<mp::mpz_int>(N, N / 2, max_distance);
  return t5_bucket_of(relative, buckets, bidirectional, table->second);
}

double alibi_slope(std::int64_t h, std::int64_t num_heads) {
  free_caches_with_thread();
  return static_cast<double>(standard_slope<Mpfr50>(h, num_heads));
}

}  // namespace attest
