// SPDX-License-Identifier: Apache-2.0
#include "impls/faulty/stepwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "impls/parallel.hpp"

namespace attest::faulty {

template <class S>
void Stepwise<S>::serve(const attest_attention& asked, const Sizes& of_call, const Context& given) {
  problem = asked;
  sizes = of_call;
  context = given;
  refuse();
  run();
}

template <class S>
void Stepwise<S>::run() {
  std::vector<Sequence> sequences;
  for (std::int64_t n = 0; n < sizes.sequences; ++n) sequences.push_back(sequence(n));
  clear_padding();
  parallel_for(sizes.sequences * sizes.heads, context.num_threads, [&](std::int64_t item) {
    attend(sequences[static_cast<std::size_t>(item / sizes.heads)], item % sizes.heads);
  });
}

template <class S>
void Stepwise<S>::clear_padding() const {
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    std::int64_t first = 0, last = sizes.q_len;  // the rows that belong to a sequence
    if (problem.cu_seqlens_q) {
      last = entry(problem.cu_seqlens_q, sizes.sequences, 0);
    } else {
      first = sequence(b).q0;
      last = sequence(b).q1;
    }
    for (std::int64_t h = 0; h < sizes.heads; ++h)
      for (std::int64_t row = 0; row < sizes.q_len; ++row)
        if (row < first || row >= last) write_padding(b, h, row);
  }
}

template <class S>
void Stepwise<S>::write_padding(std::int64_t b, std::int64_t h, std::int64_t row) const {
  const std::vector<C> zeros(static_cast<std::size_t>(sizes.v_dim));
  write_output(b, h, row, zeros.data());
  write_lse(b, h, row, kNone);
}

template <class S>
Sequence Stepwise<S>::sequence(std::int64_t n) const {
  Sequence at{};
  at.index = n;
  if (problem.cu_seqlens_q) {
    at.q0 = entry(problem.cu_seqlens_q, n, 0);
    at.q1 = entry(problem.cu_seqlens_q, n + 1, 0);
    at.k0 = entry(problem.cu_seqlens_k, n, 0);
    at.k1 = entry(problem.cu_seqlens_k, n + 1, 0);
  } else {
    at.b = n;
    at.q0 = entry(problem.left_pad_q, n, 0);
    at.q1 = entry(problem.seqlens_q, n, sizes.q_len);
    at.k0 = entry(problem.left_pad_k, n, 0);
    at.k1 = entry(problem.seqlens_k, n, sizes.kv_len);
  }
  if (at.q0 < 0 || at.q0 > at.q1 || at.q1 > sizes.q_len)
    throw Invalid("query rows of sequence " + std::to_string(n) + " lie outside q");
  if (at.k0 < 0 || at.k0 > at.k1 || at.k1 > sizes.kv_len)
    throw Invalid("key rows of sequence " + std::to_string(n) + " lie outside k");
  at.prefix = entry(problem.prefix_len, n, 0);
  at.offset = offset(at);
  return at;
}

template <class S>
std::int64_t Stepwise<S>::offset(const Sequence& at) const {
  switch (problem.align) {
    case ATTEST_ALIGN_TOP_LEFT: return 0;
    case ATTEST_ALIGN_Q_OFFSET: return entry(problem.q_offset, at.index, 0);
    default: return at.keys() - at.queries();
  }
}

template <class S>
std::int64_t Stepwise<S>::kv_head(std::int64_t h) const {
  return h / sizes.group;
}

template <class S>
Query Stepwise<S>::query(const Sequence& at, std::int64_t h, std::int64_t row) const {
  return {&at, at.b, h, row, row - at.q0 + at.offset};
}

template <class S>
Key Stepwise<S>::key(const Sequence& at, std::int64_t n) const {
  return {at.k0 + n, n};
}

template <class S>
void Stepwise<S>::attend(const Sequence& at, std::int64_t h) const {
  std::vector<C> queries(static_cast<std::size_t>(kQueryTile * sizes.dim));
  for (std::int64_t first = at.q0; first < at.q1; first += kQueryTile) {
    const std::int64_t count = std::min(kQueryTile, at.q1 - first);
    std::vector<Row<C>> rows(static_cast<std::size_t>(count));
    for (std::int64_t r = 0; r < count; ++r) {
      C* const q = queries.data() + r * sizes.dim;
      rows[static_cast<std::size_t>(r)].query = query(at, h, first + r);
      rows[static_cast<std::size_t>(r)].q = q;
      load_query(rows[static_cast<std::size_t>(r)].query, q);
    }
    const Span seen = tile_keys(rows.front().query, rows.back().query);

    std::vector<std::vector<Partial<C>>> parts(rows.size());
    std::vector<bool> empty(rows.size(), true);
    for (int split = 0; split < num_splits(at); ++split) {
      for (Row<C>& row : rows) start(row, split == 0);
      const Span keys = split_keys(at, split);
      sweep(at, h, {std::max(keys.begin, seen.begin), std::min(keys.end, seen.end)}, rows);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        parts[r].push_back(finish(rows[r]));
        empty[r] = empty[r] && rows[r].empty;
      }
    }
    for (std::size_t r = 0; r < rows.size(); ++r)
      write(rows[r].query, merge(rows[r].query, parts[r]), empty[r]);
  }
}

// --- which keys a row sees
// ------------------------------------------------------------------------

template <class S>
bool Stepwise<S>::visible(const Query& q, const Key& k) const {
  return base_allows(q, k) && band_allows(q, k) && mask_allows(q, k) && blocks_allow(q, k);
}

template <class S>
bool Stepwise<S>::base_allows(const Query& q, const Key& k) const {
  switch (problem.base) {
    case ATTEST_BASE_CAUSAL: return k.position <= q.position;
    case ATTEST_BASE_PREFIX: return k.position < q.sequence->prefix || k.position <= q.position;
    default: return true;
  }
}

template <class S>
bool Stepwise<S>::band_allows(const Query& q, const Key& k) const {
  const bool from = problem.window_left < 0 || q.position - k.position <= problem.window_left;
  const bool to = problem.window_right < 0 || k.position - q.position <= problem.window_right;
  if (from && to) return true;
  const std::int64_t globals = problem.global_tokens;
  return (q.position >= 0 && q.position < globals) || k.position < globals;
}

template <class S>
bool Stepwise<S>::mask_allows(const Query& q, const Key& k) const {
  if (!problem.mask) return true;
  return TensorView<const std::uint8_t>(problem.mask).broadcast(q.b, q.h, q.row, k.row) != 0;
}

template <class S>
bool Stepwise<S>::blocks_allow(const Query& q, const Key& k) const {
  if (!problem.blocks) return true;
  return TensorView<const std::uint8_t>(problem.blocks)
             .broadcast(q.b, q.h, q.row / problem.block_q, k.row / problem.block_k) != 0;
}

template <class S>
Span Stepwise<S>::tile_keys(const Query& first, const Query& last) const {
  const Sequence& at = *first.sequence;
  Span span{0, at.keys()};
  if (problem.base == ATTEST_BASE_CAUSAL) span.end = std::min(span.end, last.position + 1);
  if (problem.base == ATTEST_BASE_PREFIX)
    span.end = std::min(span.end, std::max(last.position + 1, at.prefix));
  if (problem.global_tokens > 0) return span;  // the window alone hides nothing for sure
  // A window beyond the keys hides none; adding it could overflow.
  if (problem.window_left >= 0 && problem.window_left < first.position)
    span.begin = first.position - problem.window_left;
  if (problem.window_right >= 0 && problem.window_right < at.keys() - last.position)
    span.end = std::min(span.end, last.position + problem.window_right + 1);
  return span;
}

template <class S>
Compute<S> Stepwise<S>::hidden_score(const Query&, const Key&) const {
  return kNone;
}

// --- from memory
// ----------------------------------------------------------------------------------

template <class S>
void Stepwise<S>::load_query(const Query& q, C* to) const {
  load_row(row_of<S>(problem.q, q.b, q.h, q.row), problem.q->strides[3], sizes.dim, to);
  if (problem.rope) rotate(to, q.position);
}

template <class S>
void Stepwise<S>::load_block(const Sequence& at, std::int64_t h, Block<C>& block) const {
  block.g = kv_head(h);
  block.keys.clear();
  block.k.resize(static_cast<std::size_t>(block.count * sizes.dim));
  block.v.resize(static_cast<std::size_t>(block.count * sizes.v_dim));
  for (std::int64_t n = 0; n < block.count; ++n) {
    block.keys.push_back(key(at, block.first + n));
    load_key(at, block.g, block.keys.back(), block.k.data() + n * sizes.dim);
    load_value(at, block.g, block.keys.back(), block.v.data() + n * sizes.v_dim);
  }
}

template <class S>
void Stepwise<S>::load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const {
  load_row(row_of<S>(problem.k, at.b, g, k.row), problem.k->strides[3], sizes.dim, to);
  if (problem.rope) rotate(to, k.position);
}

template <class S>
void Stepwise<S>::load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const {
  load_row(row_of<S>(problem.v, at.b, g, k.row), problem.v->strides[3], sizes.v_dim, to);
}

template <class S>
void Stepwise<S>::rotate(C* row, std::int64_t position) const {
  const bool interleaved = problem.rope == ATTEST_ROPE_INTERLEAVED;
  const std::int64_t half = problem.rope_dim / 2;
  for (std::int64_t t = 0; t < half; ++t) {
    C cosine, sine;
    rotation(position, t, cosine, sine);
    C& x = row[interleaved ? 2 * t : t];
    C& y = row[interleaved ? 2 * t + 1 : t + half];
    const C before = x;
    x = before * cosine - y * sine;
    y = before * sine + y * cosine;
  }
}

template <class S>
void Stepwise<S>::rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const {
  // Faults may put rows where the tables do not reach; the mistake planted is the position.
  const std::int64_t row =
      std::clamp<std::int64_t>(position - problem.rope_position, 0, problem.rope_cos->shape[0] - 1);
  cosine = TensorView<const C>(problem.rope_cos)(row, t);
  sine = TensorView<const C>(problem.rope_sin)(row, t);
}

// --- scores
// ---------------------------------------------------------------------------------------

template <class S>
Compute<S> Stepwise<S>::score(const Query& q, const Key& k, const C* query, const C* key) const {
  C z = scaled(dot(query, key, sizes.dim));
  if (problem.alibi && problem.alibi_inside_softcap) z += alibi(q, k);
  if (problem.softcap > 0) z = capped(z);
  if (problem.alibi && !problem.alibi_inside_softcap) z += alibi(q, k);
  if (problem.bias) z += bias(q, k);
  return z;
}

template <class S>
Compute<S> Stepwise<S>::dot(const C* a, const C* b, std::int64_t n) const {
  C sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

template <class S>
Compute<S> Stepwise<S>::scaled(C product) const {
  return product * static_cast<C>(problem.scale);
}

template <class S>
Compute<S> Stepwise<S>::capped(C score) const {
  const auto cap = static_cast<C>(problem.softcap);
  return cap * std::tanh(score / cap);
}

template <class S>
Compute<S> Stepwise<S>::alibi(const Query& q, const Key& k) const {
  const std::int64_t distance = k.position - q.position;
  switch (problem.alibi) {
    case ATTEST_ALIBI_ABSOLUTE: return -slope(q) * static_cast<C>(std::abs(distance));
    case ATTEST_ALIBI_SIGNED: return slope(q) * static_cast<C>(distance);
    default: return slope(q) * static_cast<C>(k.position);
  }
}

template <class S>
Compute<S> Stepwise<S>::slope(const Query& q) const {
  const TensorView<const C> slopes(problem.alibi_slopes);
  return slopes.rank() == 2 ? slopes(q.b, q.h) : slopes(q.h);
}

template <class S>
Compute<S> Stepwise<S>::bias(const Query& q, const Key& k) const {
  return widen(TensorView<const S>(problem.bias).broadcast(q.b, q.h, q.row, k.row));
}

template <class S>
Compute<S> Stepwise<S>::sink(std::int64_t h) const {
  return problem.sink ? TensorView<const C>(problem.sink)(h) : kNone;
}

// --- online softmax
// -------------------------------------------------------------------------------

template <class S>
void Stepwise<S>::sweep(const Sequence& at, std::int64_t h, Span keys,
                        std::vector<Row<C>>& rows) const {
  Block<C> block;
  for (block.first = keys.begin; block.first < keys.end; block.first += key_block()) {
    block.count = std::min(key_block(), keys.end - block.first);
    load_block(at, h, block);
    for (Row<C>& row : rows) absorb(row, block);
  }
}

template <class S>
void Stepwise<S>::start(Row<C>& row, bool with_sink) const {
  // The sink is a key that every row meets first. It has a weight and no value.
  row.max = with_sink ? sink(row.query.h) : kNone;
  row.sum = row.max == kNone ? C{0} : C{1};
  row.o.assign(static_cast<std::size_t>(sizes.v_dim), C{0});
  row.empty = true;
}

template <class S>
void Stepwise<S>::absorb(Row<C>& row, const Block<C>& block) const {
  SeenKeys<C> seen;
  seen.reserve(static_cast<std::size_t>(block.count));
  for (std::int64_t n = 0; n < block.count; ++n) {
    const Key& k = block.keys[static_cast<std::size_t>(n)];
    const C z = visible(row.query, k) ? score(row.query, k, row.q, block.k.data() + n * sizes.dim)
                                      : hidden_score(row.query, k);
    if (z != kNone) seen.push_back({n, z, C{0}});
  }
  if (seen.empty()) return;
  row.empty = false;

  const C max = next_max(row.max, seen);
  rescale(row, rescale_factor(row.max, max));
  row.max = max;
  for (Seen<C>& key : seen) key.p = weight(key.z, max);
  row.sum = add_up(row.sum, seen);

  // What is dropped stays in the sum, and its v is not looked at.
  if (problem.keep)
    std::erase_if(seen, [&](const Seen<C>& key) {
      return !kept(row.query, block.keys[static_cast<std::size_t>(key.n)]);
    });
  for (Seen<C>& key : seen) key.p = round_weight(key.p);
  accumulate(row, seen, block);
}

template <class S>
Compute<S> Stepwise<S>::next_max(C max, const SeenKeys<C>& seen) const {
  for (const Seen<C>& key : seen) max = std::max(max, key.z);
  return max;
}

template <class S>
Compute<S> Stepwise<S>::rescale_factor(C before, C now) const {
  return before == now ? C{1} : std::exp(before - now);
}

template <class S>
void Stepwise<S>::rescale(Row<C>& row, C factor) const {
  row.sum *= factor;
  for (C& o : row.o) o *= factor;
}

template <class S>
Compute<S> Stepwise<S>::weight(C z, C max) const {
  return std::exp(z - max);
}

template <class S>
Compute<S> Stepwise<S>::add_up(C sum, const SeenKeys<C>& seen) const {
  for (const Seen<C>& key : seen) sum += key.p;
  return sum;
}

template <class S>
Compute<S> Stepwise<S>::round_weight(C p) const {
  return stored(p);
}

template <class S>
bool Stepwise<S>::kept(const Query& q, const Key& k) const {
  return TensorView<const std::uint8_t>(problem.keep)(q.b, q.h, q.row, k.row) != 0;
}

template <class S>
void Stepwise<S>::accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const {
  for (const Seen<C>& key : seen) {
    const C* const v = block.v.data() + key.n * sizes.v_dim;
    for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] += key.p * v[c];
  }
}

// --- the end of a row
// -----------------------------------------------------------------------------

template <class S>
int Stepwise<S>::num_splits(const Sequence&) const {
  return 1;
}

template <class S>
Span Stepwise<S>::split_keys(const Sequence& at, int split) const {
  const std::int64_t n = num_splits(at), each = (at.keys() + n - 1) / n;
  return {std::min(at.keys(), split * each), std::min(at.keys(), (split + 1) * each)};
}

template <class S>
Partial<Compute<S>> Stepwise<S>::finish(const Row<C>& row) const {
  Partial<C> part{row.o, log_sum(row)};
  if (row.empty) return part;
  for (C& o : part.o) o = o / row.sum * keep_factor();
  return part;
}

template <class S>
Compute<S> Stepwise<S>::log_sum(const Row<C>& row) const {
  return row.max + std::log(row.sum);  // -inf + -inf where there was nothing
}

template <class S>
Compute<S> Stepwise<S>::keep_factor() const {
  return static_cast<C>(1 / (1 - problem.dropout_p));
}

template <class S>
Partial<Compute<S>> Stepwise<S>::merge(const Query&, const std::vector<Partial<C>>& parts) const {
  if (parts.size() == 1) return parts.front();
  C max = kNone, sum = 0;
  for (const Partial<C>& part : parts) max = std::max(max, part.lse);
  Partial<C> whole{std::vector<C>(static_cast<std::size_t>(sizes.v_dim)), kNone};
  if (max == kNone) {  // all parts empty, unless one is NaN
    for (const Partial<C>& part : parts)
      if (part.lse != kNone) whole = part;
    return whole;
  }
  for (const Partial<C>& part : parts) sum += std::exp(part.lse - max);
  whole.lse = max + std::log(sum);
  for (const Partial<C>& part : parts) {
    if (part.lse == kNone) continue;
    const C share = std::exp(part.lse - whole.lse);
    for (std::size_t c = 0; c < whole.o.size(); ++c) whole.o[c] += share * part.o[c];
  }
  return whole;
}

template <class S>
void Stepwise<S>::write(const Query& q, const Partial<C>& answer, bool) const {
  write_output(q.b, q.h, q.row, answer.o.data());
  write_lse(q.b, q.h, q.row, answer.lse);
}

template <class S>
void Stepwise<S>::write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const {
  S* const to = output_row<S>(problem.o, b, h, row);
  for (std::int64_t c = 0; c < sizes.v_dim; ++c) to[c * problem.o->strides[3]] = narrow<S>(o[c]);
}

template <class S>
void Stepwise<S>::write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const {
  if (problem.lse) TensorView<C>(problem.lse)(b, h, row) = lse;
}

template class Stepwise<double>;
template class Stepwise<float>;
template class Stepwise<F16>;
template class Stepwise<Bf16>;

}  // namespace attest::faulty
