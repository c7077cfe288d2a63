// SPDX-License-Identifier: Apache-2.0
#include "impls/faulty/stepwise_backward.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "impls/parallel.hpp"

namespace attest::faulty {

template <class C>
void add_multiple(C factor, const C* x, std::int64_t n, C* to) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * x[c];
}

template <class S>
void StepwiseBackward<S>::serve_backward(const attest_attention& asked, const Sizes& of_call,
                                         const Context& given) {
  problem = asked;
  sizes = of_call;
  context = given;
  this->refuse();
  run_backward();
}

template <class S>
void StepwiseBackward<S>::run_backward() {
  for (std::int64_t n = 0; n < sizes.sequences; ++n) sequences.push_back(backward_sequence(n));
  clear_gradients();
  HeadGradients heads;
  heads.d_slope.resize(static_cast<std::size_t>(sizes.sequences * sizes.heads));
  heads.d_sink = heads.d_slope;
  parallel_for(sizes.sequences * sizes.kv_heads, context.num_threads, [&](std::int64_t item) {
    differentiate(sequences[static_cast<std::size_t>(item / sizes.kv_heads)], item % sizes.kv_heads,
                  heads);
  });
  if (problem.d_bias) {
    const std::int64_t* const shape = problem.d_bias->shape;
    parallel_for(shape[0] * shape[1], context.num_threads,
                 [&](std::int64_t plane) { bias_plane(plane / shape[1], plane % shape[1]); });
  }
  if (problem.d_alibi_slopes) write_d_slopes(heads);
  if (problem.d_sink) write_d_sink(heads);
}

template <class S>
Sequence StepwiseBackward<S>::backward_sequence(std::int64_t n) const {
  return this->sequence(n);
}

template <class S>
void StepwiseBackward<S>::clear_gradients() const {
  for (const DLTensor* gradient : {problem.d_q, problem.d_k, problem.d_v})
    if (gradient) write_zeros<S>(gradient);
}

template <class S>
void StepwiseBackward<S>::differentiate(const Sequence& at, std::int64_t g,
                                        HeadGradients& heads) const {
  KeyGradients<C> keys;
  keys.d_k.resize(static_cast<std::size_t>(at.keys() * sizes.dim));
  keys.d_v.resize(static_cast<std::size_t>(at.keys() * sizes.v_dim));
  for (std::int64_t n = 0; n < sizes.group; ++n)
    differentiate_head(at, group_head(g, n), keys, heads);
  finish_keys(at, g, keys);
}

template <class S>
std::int64_t StepwiseBackward<S>::group_head(std::int64_t g, std::int64_t n) const {
  return g * sizes.group + n;
}

template <class S>
void StepwiseBackward<S>::differentiate_head(const Sequence& at, std::int64_t h,
                                             KeyGradients<C>& keys, HeadGradients& heads) const {
  const auto entry = static_cast<std::size_t>(at.index * sizes.heads + h);
  visit_head(
      at, h,
      [&](GradientRow<C>& row, const Pairs<C>& seen, const Block<C>& block) {
        add_d_q(row, seen, block);
        add_d_k(row, seen, block, keys);
        add_d_v(row, seen, block, keys);
        if (problem.alibi) add_d_slope(row, seen, block);
      },
      [&](GradientRow<C>& row) {
        finish_d_q(row);
        heads.d_slope[entry] += row.d_slope;
        heads.d_sink[entry] += d_sink(row);
      });
}

template <class S>
void StepwiseBackward<S>::visit_head(const Sequence& at, std::int64_t h, const Visit& visit,
                                     const EndOfRow& end_of_row) const {
  for (std::int64_t first = at.q0; first < at.q1; first += kQueryTile)
    visit_tile(at, h, first, std::min(kQueryTile, at.q1 - first), visit, end_of_row);
}

template <class S>
void StepwiseBackward<S>::visit_tile(const Sequence& at, std::int64_t h, std::int64_t first,
                                     std::int64_t count, const Visit& visit,
                                     const EndOfRow& end_of_row) const {
  std::vector<GradientRow<C>> rows;
  for (std::int64_t r = 0; r < count; ++r) rows.push_back(start_row(this->query(at, h, first + r)));
  const Span keys = backward_keys(rows.front().query, rows.back().query);
  Block<C> block;
  for (block.first = keys.begin; block.first < keys.end; block.first += this->key_block()) {
    block.count = std::min(this->key_block(), keys.end - block.first);
    this->load_block(at, h, block);
    for (GradientRow<C>& row : rows) {
      if (row.silent) continue;
      const Pairs<C> seen = pairs(row, block);
      if (!seen.empty()) visit(row, seen, block);
    }
  }
  for (GradientRow<C>& row : rows) end_of_row(row);
}

// --- a row
// ----------------------------------------------------------------------------------------

template <class S>
GradientRow<Compute<S>> StepwiseBackward<S>::start_row(const Query& q) const {
  GradientRow<C> row{};
  row.query = q;
  row.q.resize(static_cast<std::size_t>(sizes.dim));
  row.d_o.resize(static_cast<std::size_t>(sizes.v_dim));
  row.d_q.resize(row.q.size());
  this->load_query(q, row.q.data());
  load_d_out(q, row.d_o.data());
  row.lse = lse(q);
  row.d_lse = d_lse(q);
  row.silent = silent(row);
  row.empty = true;
  return row;
}

template <class S>
void StepwiseBackward<S>::load_d_out(const Query& q, C* to) const {
  load_row(row_of<S>(problem.d_o, q.b, q.h, q.row), problem.d_o->strides[3], sizes.v_dim, to);
}

template <class S>
void StepwiseBackward<S>::load_out(const Query& q, C* to) const {
  load_row(row_of<S>(problem.o, q.b, q.h, q.row), problem.o->strides[3], sizes.v_dim, to);
}

template <class S>
Compute<S> StepwiseBackward<S>::lse(const Query& q) const {
  if (problem.lse) return TensorView<const C>(problem.lse)(q.b, q.h, q.row);
  // Forward was not asked for it: this row's keys once more.
  std::vector<C> query(static_cast<std::size_t>(sizes.dim));
  this->load_query(q, query.data());
  std::vector<Row<C>> rows(1);
  rows.front().query = q;
  rows.front().q = query.data();
  this->start(rows.front(), true);
  this->sweep(*q.sequence, q.h, this->tile_keys(q, q), rows);
  return this->log_sum(rows.front());
}

template <class S>
Compute<S> StepwiseBackward<S>::d_lse(const Query& q) const {
  return problem.d_lse ? TensorView<const C>(problem.d_lse)(q.b, q.h, q.row) : C{0};
}

template <class S>
bool StepwiseBackward<S>::silent(const GradientRow<C>& row) const {
  return row.d_lse == 0 && std::all_of(row.d_o.begin(), row.d_o.end(), [](C x) { return x == 0; });
}

template <class S>
Compute<S> StepwiseBackward<S>::delta(const GradientRow<C>& row) const {
  std::vector<C> o(static_cast<std::size_t>(sizes.v_dim));
  load_out(row.query, o.data());
  // 0 takes nothing from an o that has overflowed.
  for (std::size_t c = 0; c < o.size(); ++c)
    if (row.d_o[c] == 0) o[c] = 0;
  return this->dot(row.d_o.data(), o.data(), sizes.v_dim);
}

// --- pairs
// ----------------------------------------------------------------------------------------

template <class S>
Span StepwiseBackward<S>::backward_keys(const Query& first, const Query& last) const {
  return this->tile_keys(first, last);
}

template <class S>
Pairs<Compute<S>> StepwiseBackward<S>::pairs(GradientRow<C>& row, const Block<C>& block) const {
  Pairs<C> seen;
  for (std::int64_t n = 0; n < block.count; ++n) {
    const Key& k = block.keys[static_cast<std::size_t>(n)];
    const C* const key = block.k.data() + n * sizes.dim;
    const C z = visible_in_backward(row.query, k) ? this->score(row.query, k, row.q.data(), key)
                                                  : this->hidden_score(row.query, k);
    if (!takes_part(row, z)) continue;
    // o of a row without a key may be anything, so that delta has to wait for one.
    if (row.empty) row.delta = delta(row);
    row.empty = false;

    Pair<C> pair{};
    pair.n = n;
    pair.p = weight_again(row, z);
    pair.kept = dropout_factor(row.query, k);
    pair.weight = round_p(pair.p * pair.kept);
    pair.d_p = d_weight(row, pair.kept, block.v.data() + n * sizes.v_dim);
    pair.d_z = d_score(row, pair.p, pair.d_p);
    pair.d_a = problem.softcap > 0 ? through_softcap(row, k, key, pair.d_z) : pair.d_z;
    pair.d_s = round_d_s(pair.d_a);
    seen.push_back(pair);
  }
  return seen;
}

template <class S>
bool StepwiseBackward<S>::visible_in_backward(const Query& q, const Key& k) const {
  return this->visible(q, k);
}

template <class S>
bool StepwiseBackward<S>::takes_part(const GradientRow<C>&, C z) const {
  return z != kNone;
}

template <class S>
Compute<S> StepwiseBackward<S>::weight_again(const GradientRow<C>& row, C z) const {
  return std::exp(z - row.lse);
}

template <class S>
Compute<S> StepwiseBackward<S>::dropout_factor(const Query& q, const Key& k) const {
  if (!problem.keep) return 1;
  return this->kept(q, k) ? this->keep_factor() : C{0};
}

template <class S>
Compute<S> StepwiseBackward<S>::d_weight(const GradientRow<C>& row, C kept, const C* value) const {
  if (kept != 0) return kept * this->dot(row.d_o.data(), value, sizes.v_dim);
  // A dropped value is not looked at, whatever it is; a NaN in dO shows all the same.
  C nothing = 0;
  for (const C x : row.d_o) nothing += 0 * x;
  return nothing;
}

template <class S>
Compute<S> StepwiseBackward<S>::d_score(const GradientRow<C>& row, C p, C d_p) const {
  return p * (d_p - row.delta + row.d_lse);
}

template <class S>
Compute<S> StepwiseBackward<S>::through_softcap(const GradientRow<C>& row, const Key& k,
                                                const C* key, C d_z) const {
  C a = this->scaled(this->dot(row.q.data(), key, sizes.dim));
  if (problem.alibi && problem.alibi_inside_softcap) a += this->alibi(row.query, k);
  const C t = std::tanh(a / static_cast<C>(problem.softcap));
  return d_z * (1 - t * t);
}

template <class S>
Compute<S> StepwiseBackward<S>::round_p(C p) const {
  return this->stored(p);
}

template <class S>
Compute<S> StepwiseBackward<S>::round_d_s(C d_s) const {
  return this->stored(d_s);
}

// --- sums
// -----------------------------------------------------------------------------------------

template <class S>
void StepwiseBackward<S>::add_d_q(GradientRow<C>& row, const Pairs<C>& pairs,
                                  const Block<C>& block) const {
  for (const Pair<C>& pair : pairs)
    add_multiple(pair.d_s, block.k.data() + pair.n * sizes.dim, sizes.dim, row.d_q.data());
}

template <class S>
void StepwiseBackward<S>::add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs,
                                  const Block<C>& block, KeyGradients<C>& keys) const {
  for (const Pair<C>& pair : pairs)
    add_multiple(pair.d_s, row.q.data(), sizes.dim,
                 keys.d_k.data() + (block.first + pair.n) * sizes.dim);
}

template <class S>
void StepwiseBackward<S>::add_d_v(const GradientRow<C>& row, const Pairs<C>& pairs,
                                  const Block<C>& block, KeyGradients<C>& keys) const {
  for (const Pair<C>& pair : pairs)
    add_multiple(pair.weight, row.d_o.data(), sizes.v_dim,
                 keys.d_v.data() + (block.first + pair.n) * sizes.v_dim);
}

template <class S>
void StepwiseBackward<S>::add_d_slope(GradientRow<C>& row, const Pairs<C>& pairs,
                                      const Block<C>& block) const {
  for (const Pair<C>& pair : pairs)
    row.d_slope += (problem.alibi_inside_softcap ? pair.d_a : pair.d_z) *
                   alibi_distance(row.query, block.keys[static_cast<std::size_t>(pair.n)]);
}

template <class S>
Compute<S> StepwiseBackward<S>::alibi_distance(const Query& q, const Key& k) const {
  switch (problem.alibi) {
    case ATTEST_ALIBI_ABSOLUTE: return -static_cast<C>(std::abs(k.position - q.position));
    case ATTEST_ALIBI_SIGNED: return static_cast<C>(k.position - q.position);
    default: return static_cast<C>(k.position);
  }
}

template <class S>
Compute<S> StepwiseBackward<S>::d_sink(const GradientRow<C>& row) const {
  const C sink = this->sink(row.query.h);
  if (sink == kNone || row.silent) return 0;
  return row.empty ? row.d_lse : std::exp(sink - row.lse) * (row.d_lse - row.delta);
}

template <class S>
void StepwiseBackward<S>::bias_plane(std::int64_t b, std::int64_t h) const {
  const std::int64_t* const shape = problem.d_bias->shape;
  std::vector<C> sums(static_cast<std::size_t>(shape[2] * shape[3]));
  const Visit add = [&](GradientRow<C>& row, const Pairs<C>& seen, const Block<C>& block) {
    C* const sums_of_row = sums.data() + (shape[2] == 1 ? 0 : row.query.row) * shape[3];
    for (const Pair<C>& pair : seen) {
      const Key& k = block.keys[static_cast<std::size_t>(pair.n)];
      add_d_bias(sums_of_row[shape[3] == 1 ? 0 : k.row], pair.d_z);
    }
  };
  for (const Sequence& at : sequences) {
    if (shape[0] != 1 && at.b != b) continue;
    for (std::int64_t reader = 0; reader < sizes.heads; ++reader)
      if (shape[1] == 1 || reader == h) visit_head(at, reader, add, [](GradientRow<C>&) {});
  }
  write_d_bias(b, h, sums);
}

template <class S>
void StepwiseBackward<S>::add_d_bias(C& sum, C d_z) const {
  sum += d_z;
}

// --- the end
// --------------------------------------------------------------------------------------

template <class S>
Compute<S> StepwiseBackward<S>::d_q_factor() const {
  return static_cast<C>(problem.scale);
}

template <class S>
Compute<S> StepwiseBackward<S>::d_k_factor() const {
  return static_cast<C>(problem.scale);
}

template <class S>
void StepwiseBackward<S>::turn_back(C* row, std::int64_t position) const {
  const bool interleaved = problem.rope == ATTEST_ROPE_INTERLEAVED;
  const std::int64_t half = problem.rope_dim / 2;
  for (std::int64_t t = 0; t < half; ++t) {
    C cosine, sine;
    this->rotation(position, t, cosine, sine);
    C& x = row[interleaved ? 2 * t : t];
    C& y = row[interleaved ? 2 * t + 1 : t + half];
    const C before = x;
    x = before * cosine + y * sine;
    y = y * cosine - before * sine;
  }
}

template <class S>
void StepwiseBackward<S>::turn_d_q(const Query& q, C* d_q) const {
  turn_back(d_q, q.position);
}

template <class S>
void StepwiseBackward<S>::turn_d_k(const Key& k, C* d_k) const {
  turn_back(d_k, k.position);
}

template <class S>
void StepwiseBackward<S>::finish_d_q(GradientRow<C>& row) const {
  if (problem.rope) turn_d_q(row.query, row.d_q.data());
  for (C& x : row.d_q) x *= d_q_factor();
  if (problem.d_q) write_d_q(row.query, row.d_q.data());
}

template <class S>
void StepwiseBackward<S>::finish_keys(const Sequence& at, std::int64_t g,
                                      KeyGradients<C>& keys) const {
  for (std::int64_t n = 0; n < at.keys(); ++n) {
    const Key k = this->key(at, n);
    C* const d_k = keys.d_k.data() + n * sizes.dim;
    if (problem.rope) turn_d_k(k, d_k);
    for (std::int64_t c = 0; c < sizes.dim; ++c) d_k[c] *= d_k_factor();
    if (problem.d_k) write_d_k(at, g, k, d_k);
    if (problem.d_v) write_d_v(at, g, k, keys.d_v.data() + n * sizes.v_dim);
  }
}

template <class S>
void StepwiseBackward<S>::write_d_q(const Query& q, const C* d_q) const {
  store_row(d_q, C{1}, sizes.dim, output_row<S>(problem.d_q, q.b, q.h, q.row),
            problem.d_q->strides[3]);
}

template <class S>
void StepwiseBackward<S>::write_d_k(const Sequence& at, std::int64_t g, const Key& k,
                                    const C* d_k) const {
  store_row(d_k, C{1}, sizes.dim, output_row<S>(problem.d_k, at.b, g, k.row),
            problem.d_k->strides[3]);
}

template <class S>
void StepwiseBackward<S>::write_d_v(const Sequence& at, std::int64_t g, const Key& k,
                                    const C* d_v) const {
  store_row(d_v, C{1}, sizes.v_dim, output_row<S>(problem.d_v, at.b, g, k.row),
            problem.d_v->strides[3]);
}

template <class S>
void StepwiseBackward<S>::write_d_bias(std::int64_t b, std::int64_t h,
                                       const std::vector<C>& sums) const {
  const std::int64_t* const shape = problem.d_bias->shape;
  for (std::int64_t i = 0; i < shape[2]; ++i)
    store_row(sums.data() + i * shape[3], C{1}, shape[3], output_row<S>(problem.d_bias, b, h, i),
              problem.d_bias->strides[3]);
}

template <class S>
void StepwiseBackward<S>::write_d_slopes(const HeadGradients& heads) const {
  sum_per_head<C>(heads.d_slope, batch_of_sequences(), problem.d_alibi_slopes);
}

template <class S>
void StepwiseBackward<S>::write_d_sink(const HeadGradients& heads) const {
  sum_per_head<C>(heads.d_sink, batch_of_sequences(), problem.d_sink);
}

template <class S>
std::vector<std::int64_t> StepwiseBackward<S>::batch_of_sequences() const {
  std::vector<std::int64_t> batch_of;
  for (const Sequence& at : sequences) batch_of.push_back(at.b);
  return batch_of;
}

template class StepwiseBackward<double>;
template class StepwiseBackward<float>;
template class StepwiseBackward<F16>;
template class StepwiseBackward<Bf16>;

}  // namespace attest::faulty
