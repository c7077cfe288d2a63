// SPDX-License-Identifier: Apache-2.0
// naive: the textbook, one matrix after the other. For each block of query rows the whole score
// matrix [rows, kv_len] is materialised: products, then scores, then weights, then the weighted sum
// of V. Whether a query sees a key is asked pair by pair.
//
// Contract: computes in f32 (f64 for f64); weights stay unrounded and unnormalised, the row is
// divided by its sum at the end. RoPE comes from the caller's tables. A work item is one sequence
// and key/value head.
#include <cmath>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/parallel.hpp"
#include "impls/storage.hpp"

namespace attest {
namespace {

constexpr std::int64_t kRows = 64;  // of the score matrix at a time: 1 MiB at 4096 keys

/// The rows [q0, q1) and [k0, k1) of one sequence, and where its query row q0 stands among them.
struct Sequence {
  std::int64_t b = 0;
  std::int64_t q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  std::int64_t offset = 0;
  std::int64_t prefix = 0;
};

std::int64_t entry(const DLTensor* tensor, std::int64_t i, std::int64_t otherwise) {
  return tensor ? TensorView<const std::int32_t>(tensor)(i) : otherwise;
}

Sequence sequence_of(const attest_attention& p, const Sizes& s, std::int64_t index) {
  Sequence q;
  if (p.cu_seqlens_q) {
    q.q0 = entry(p.cu_seqlens_q, index, 0), q.q1 = entry(p.cu_seqlens_q, index + 1, 0);
    q.k0 = entry(p.cu_seqlens_k, index, 0), q.k1 = entry(p.cu_seqlens_k, index + 1, 0);
  } else {
    q.b = index;
    q.q0 = entry(p.left_pad_q, index, 0), q.q1 = entry(p.seqlens_q, index, s.q_len);
    q.k0 = entry(p.left_pad_k, index, 0), q.k1 = entry(p.seqlens_k, index, s.kv_len);
  }
  if (q.q0 < 0 || q.q1 < q.q0 || q.q1 > s.q_len || q.k0 < 0 || q.k1 < q.k0 || q.k1 > s.kv_len)
    throw Invalid("sequence " + std::to_string(index) + " has rows that do not exist");
  if (p.align == ATTEST_ALIGN_BOTTOM_RIGHT) q.offset = (q.k1 - q.k0) - (q.q1 - q.q0);
  if (p.align == ATTEST_ALIGN_Q_OFFSET) q.offset = entry(p.q_offset, index, 0);
  q.prefix = entry(p.prefix_len, index, 0);
  return q;
}

/// One call, as this implementation looks at it.
template <class Storage>
struct Naive {
  using C = Compute<Storage>;

  const attest_attention& p;
  const Sizes s;
  const TensorView<const std::uint8_t> mask{p.mask}, blocks{p.blocks}, keep{p.keep};
  const TensorView<const Storage> bias{p.bias};
  const TensorView<const C> slopes{p.alibi_slopes}, sink{p.sink}, cosines{p.rope_cos},
      sines{p.rope_sin};
  const TensorView<C> lse{p.lse};

  Naive(const attest_attention& problem, const Sizes& sizes) : p(problem), s(sizes) {}

  bool visible(const Sequence& at, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t query = i - at.q0 + at.offset;
    const std::int64_t key = j - at.k0;
    if (p.base != ATTEST_BASE_FULL && key > query && !(p.prefix_len && key < at.prefix))
      return false;
    const bool left = p.window_left < 0 || query - key <= p.window_left;
    const bool right = p.window_right < 0 || key - query <= p.window_right;
    const bool global = (query >= 0 && query < p.global_tokens) || key < p.global_tokens;
    if (!(left && right) && !global) return false;
    if (mask && !mask.broadcast(at.b, h, i, j)) return false;
    return !blocks || blocks.broadcast(at.b, h, i / p.block_q, j / p.block_k);
  }

  /// row := R(position) row.
  void rotate(C* row, std::int64_t position) const {
    const bool pairs = p.rope == ATTEST_ROPE_INTERLEAVED;
    const std::int64_t half = p.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      const C cosine = cosines(position - p.rope_position, t);
      const C sine = sines(position - p.rope_position, t);
      C& first = row[pairs ? 2 * t : t];
      C& second = row[pairs ? 2 * t + 1 : t + half];
      const C x = first, y = second;
      first = x * cosine - y * sine;
      second = x * sine + y * cosine;
    }
  }

  /// The score of a visible pair from q.k; -inf where the bias says so.
  C score(const Sequence& at, std::int64_t h, std::int64_t i, std::int64_t j, C product) const {
    C z = static_cast<C>(p.scale) * product;
    C alibi = 0;
    if (p.alibi) {
      const std::int64_t query = i - at.q0 + at.offset;
      const std::int64_t key = j - at.k0;
      const std::int64_t distance = p.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::abs(query - key)
                                    : p.alibi == ATTEST_ALIBI_SIGNED ? key - query
                                                                     : key;
      alibi = (slopes.rank() == 2 ? slopes(at.b, h) : slopes(h)) * static_cast<C>(distance);
    }
    if (p.alibi_inside_softcap) z += alibi;
    if (p.softcap > 0) {
      const auto cap = static_cast<C>(p.softcap);
      z = cap * std::tanh(z / cap);
    }
    if (!p.alibi_inside_softcap) z += alibi;
    if (bias) z += widen(bias.broadcast(at.b, h, i, j));
    return z;
  }

  /// Query rows [begin, end) of head h. `keys` is [D, n], `values` [n, Dv].
  void rows(const Sequence& at, std::int64_t h, std::int64_t begin, std::int64_t end, const C* keys,
            const C* values) const {
    static constexpr C kNone = -std::numeric_limits<C>::infinity();
    thread_local std::vector<C> score_buffer, query_buffer, output_buffer;
    const std::int64_t n = at.k1 - at.k0;
    C* const scores = scratch(score_buffer, kRows * n);
    C* const query = scratch(query_buffer, s.dim);
    C* const output = scratch(output_buffer, s.v_dim);

    for (std::int64_t i = begin; i < end; ++i) {
      C* const __restrict row = scores + (i - begin) * n;
      load_row(row_of<Storage>(p.q, at.b, h, i), p.q->strides[3], s.dim, query);
      if (p.rope) rotate(query, i - at.q0 + at.offset);
      std::fill(row, row + n, C{0});
      for (std::int64_t c = 0; c < s.dim; ++c) {
        const C x = query[c];
        const C* const __restrict channel = keys + c * n;
        for (std::int64_t j = 0; j < n; ++j) row[j] += x * channel[j];
      }
    }

    for (std::int64_t i = begin; i < end; ++i) {
      C* const row = scores + (i - begin) * n;
      C max = kNone;
      bool empty = true;
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] = visible(at, h, i, at.k0 + j) ? score(at, h, i, at.k0 + j, row[j]) : kNone;
        if (row[j] > max) max = row[j];
        if (row[j] != kNone) empty = false;  // also where it is NaN, which then comes out below
      }
      const C extra = sink ? sink(h) : kNone;
      if (extra > max) max = extra;
      C sum = std::exp(extra - max);  // 0 without a sink; an empty row has no use for it
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] = row[j] == kNone ? C{0} : std::exp(row[j] - max);
        sum += row[j];
      }
      if (lse) lse(at.b, h, i) = empty ? extra : max + std::log(sum);

      std::fill(output, output + s.v_dim, C{0});
      const auto kept = static_cast<C>(1 / (1 - p.dropout_p));
      for (std::int64_t j = 0; j < n; ++j) {
        C weight = row[j];
        if (keep) weight = keep(at.b, h, i, at.k0 + j) ? weight * kept : C{0};
        if (weight == 0) continue;  // 0 * NaN would let a key through that this row does not see
        const C* const __restrict value = values + j * s.v_dim;
        for (std::int64_t c = 0; c < s.v_dim; ++c) output[c] += weight * value[c];
      }
      Storage* const to = output_row<Storage>(p.o, at.b, h, i);
      for (std::int64_t c = 0; c < s.v_dim; ++c)
        to[c * p.o->strides[3]] = narrow<Storage>(empty ? C{0} : output[c] / sum);
    }
  }

  /// All query heads of one sequence that share key/value head g.
  void group(const Sequence& at, std::int64_t g) const {
    thread_local std::vector<C> key_buffer, value_buffer, row_buffer;
    const std::int64_t n = at.k1 - at.k0;
    if (at.q0 == at.q1) return;
    C* const keys = scratch(key_buffer, s.dim * n);
    C* const values = scratch(value_buffer, n * s.v_dim);
    C* const row = scratch(row_buffer, s.dim);
    for (std::int64_t j = 0; j < n; ++j) {
      load_row(row_of<Storage>(p.k, at.b, g, at.k0 + j), p.k->strides[3], s.dim, row);
      if (p.rope) rotate(row, j);
      for (std::int64_t c = 0; c < s.dim; ++c) keys[c * n + j] = row[c];
      load_row(row_of<Storage>(p.v, at.b, g, at.k0 + j), p.v->strides[3], s.v_dim,
               values + j * s.v_dim);
    }
    for (std::int64_t h = g * s.group; h < (g + 1) * s.group; ++h)
      for (std::int64_t i = at.q0; i < at.q1; i += kRows)
        rows(at, h, i, std::min(i + kRows, at.q1), keys, values);
  }

  /// What padding rows keep: o = 0, lse = -inf.
  void clear() const {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.q_len; ++i) {
          Storage* const to = output_row<Storage>(p.o, b, h, i);
          for (std::int64_t c = 0; c < s.v_dim; ++c) to[c * p.o->strides[3]] = narrow<Storage>(0);
          if (lse) lse(b, h, i) = -std::numeric_limits<C>::infinity();
        }
  }

  void run(int num_threads) const {
    std::vector<Sequence> sequences;
    for (std::int64_t i = 0; i < s.sequences; ++i) sequences.push_back(sequence_of(p, s, i));
    if (p.seqlens_q || p.left_pad_q || p.cu_seqlens_q) clear();
    parallel_for(s.sequences * s.kv_heads, num_threads, [&](std::int64_t item) {
      group(sequences[static_cast<std::size_t>(item / s.kv_heads)], item % s.kv_heads);
    });
  }
};

class NaiveKernel : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    const Sizes sizes = read_sizes(problem);
    with_storage(sizes.dtype, [&](auto storage) {
      Naive<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
};
ATTEST_PLUGIN(NaiveKernel, "naive", "1.0",
              "dtype=f64,f32,f16,bf16 features=all "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
