// SPDX-License-Identifier: Apache-2.0
// What forward and backward of `naive` share: which key a query sees, asked pair by pair, and the
// score of a pair. No other implementation includes this.
#pragma once

#include <cmath>
#include <string>

#include "attest/plugin.hpp"
#include "impls/storage.hpp"

namespace attest::naive {

using std::exp, std::log, std::tanh;  // of other number types: found by argument

/// The rows [q0, q1) and [k0, k1) of one sequence, and where its query row q0 stands among them.
struct Sequence {
  std::int64_t b = 0;
  std::int64_t q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  std::int64_t offset = 0;
  std::int64_t prefix = 0;
};

inline std::int64_t entry(const DLTensor* tensor, std::int64_t i, std::int64_t otherwise) {
  return tensor ? TensorView<const std::int32_t>(tensor)(i) : otherwise;
}

inline Sequence sequence_of(const attest_attention& p, const Sizes& s, std::int64_t index) {
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

inline std::vector<Sequence> sequences_of(const attest_attention& p, const Sizes& s) {
  std::vector<Sequence> sequences;
  for (std::int64_t i = 0; i < s.sequences; ++i) sequences.push_back(sequence_of(p, s, i));
  return sequences;
}

/// One call, as this implementation looks at it.
template <class Storage>
struct Call {
  using C = Compute<Storage>;

  /// Of a visible pair: -inf where the bias says so; and d score / d (scale q.k).
  struct Score {
    C z, slope;
  };

  const attest_attention& p;
  const Sizes s;
  const TensorView<const std::uint8_t> mask{p.mask}, blocks{p.blocks}, keep{p.keep};
  const TensorView<const Storage> bias{p.bias};
  const TensorView<const C> slopes{p.alibi_slopes}, sink{p.sink}, cosines{p.rope_cos},
      sines{p.rope_sin};

  Call(const attest_attention& problem, const Sizes& sizes) : p(problem), s(sizes) {}

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

  /// row := R(position) row; with direction -1 the way back.
  void rotate(C* row, std::int64_t position, C direction = 1) const {
    const bool pairs = p.rope == ATTEST_ROPE_INTERLEAVED;
    const std::int64_t half = p.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      const C cosine = cosines(position - p.rope_position, t);
      const C sine = direction * sines(position - p.rope_position, t);
      C& first = row[pairs ? 2 * t : t];
      C& second = row[pairs ? 2 * t + 1 : t + half];
      const C x = first, y = second;
      first = x * cosine - y * sine;
      second = x * sine + y * cosine;
    }
  }

  /// What a slope of 1 adds to the score.
  C alibi_distance(const Sequence& at, std::int64_t i, std::int64_t j) const {
    const std::int64_t query = i - at.q0 + at.offset;
    const std::int64_t key = j - at.k0;
    return static_cast<C>(p.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::abs(query - key)
                          : p.alibi == ATTEST_ALIBI_SIGNED ? key - query
                                                           : key);
  }

  /// The score of a visible pair from q.k.
  Score score(const Sequence& at, std::int64_t h, std::int64_t i, std::int64_t j, C product) const {
    C z = static_cast<C>(p.scale) * product;
    C slope = 1;
    C alibi = 0;
    if (p.alibi)
      alibi = (slopes.rank() == 2 ? slopes(at.b, h) : slopes(h)) * alibi_distance(at, i, j);
    if (p.alibi_inside_softcap) z += alibi;
    if (p.softcap > 0) {
      const auto cap = static_cast<C>(p.softcap);
      const C t = tanh(z / cap);
      z = cap * t;
      slope = 1 - t * t;
    }
    if (!p.alibi_inside_softcap) z += alibi;
    if (bias) z += widen(bias.broadcast(at.b, h, i, j));
    return {z, slope};
  }

  /// Key rows of head g, turned to their positions, as [n, D].
  void load_keys(const Sequence& at, std::int64_t g, C* to) const {
    for (std::int64_t j = at.k0; j < at.k1; ++j, to += s.dim) {
      load_row(row_of<Storage>(p.k, at.b, g, j), p.k->strides[3], s.dim, to);
      if (p.rope) rotate(to, j - at.k0);
    }
  }
  void load_query(const Sequence& at, std::int64_t h, std::int64_t i, C* to) const {
    load_row(row_of<Storage>(p.q, at.b, h, i), p.q->strides[3], s.dim, to);
    if (p.rope) rotate(to, i - at.q0 + at.offset);
  }
};

}  // namespace attest::naive
