// SPDX-License-Identifier: Apache-2.0
// Forward of `chunked`: online softmax over blocks of 64 keys. Each key block is read once and
// every query row that sees some of it updates its running maximum, sum and output; no matrix of
// scores exists. What a row sees of a block is one 64-bit word, made from at most two intervals of
// keys; blocks that no row can see are skipped before they are read.
//
// Contract: computes in f32 (f64 for f64); weights of f16 and bf16 are rounded to the storage type
// before the product with V, the row sum adds the unrounded ones. RoPE angles are computed here, in
// double; an f64 call uses the caller's tables, because an angle computed in double is off by about
// position * 2^-53. A work item is one sequence and key/value head.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "impls/chunked.hpp"
#include "impls/parallel.hpp"
#include "impls/storage.hpp"

namespace attest::chunked {

template <class Storage>
class Forward : Call<Storage> {
  using Base = Call<Storage>;
  using Base::p_, Base::s_, Base::kNone;
  using typename Base::C;

 public:
  using Base::Base;

  void run(int num_threads) const {
    clear_padding();
    parallel_for(s_.sequences * s_.kv_heads, num_threads, [&](std::int64_t item) {
      thread_local Workspace<C> workspace;
      const std::int64_t g = item % s_.kv_heads;
      const Ranges at = this->ranges(item / s_.kv_heads);
      attend({at, g, g * s_.group, (g + 1) * s_.group, 0, at.queries}, workspace);
    });
  }

 private:
  void clear_padding() const {
    const auto clear = [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = 0; h < s_.heads; ++h)
        for (std::int64_t i = begin; i < end; ++i) write(b, h, i, nullptr, 0, kNone);
    };
    if (p_.cu_seqlens_q) {
      clear(0, value_at(p_.cu_seqlens_q, s_.sequences, 0), s_.q_len);
      return;
    }
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      const Ranges at = this->ranges(b);
      clear(b, 0, at.q0);
      clear(b, at.q0 + at.queries, s_.q_len);
    }
  }

  /// o = factor * output, or 0 where output is null.
  void write(std::int64_t b, std::int64_t h, std::int64_t i, const C* output, C factor,
             C lse) const {
    Storage* const to = output_row<Storage>(p_.o, b, h, i);
    for (std::int64_t c = 0; c < s_.v_dim; ++c)
      to[c * p_.o->strides[3]] = narrow<Storage>(output ? output[c] * factor : C{0});
    if (p_.lse) TensorView<C>(p_.lse)(b, h, i) = lse;
  }

  /// Row n of the span takes in a block of keys.
  void update(const Span& span, std::int64_t n, Scores<C>& scores, Workspace<C>& w) const {
    const TensorView<const std::uint8_t> keep(p_.keep);
    C* const output = w.outputs.data() + n * s_.v_dim;
    const C alpha = Base::absorb(scores, w.rows[static_cast<std::size_t>(n)]);
    if (alpha != 1)
      for (std::int64_t c = 0; c < s_.v_dim; ++c) output[c] *= alpha;
    for (std::uint64_t todo = scores.bits; todo != 0; todo &= todo - 1) {
      const int bit = std::countr_zero(todo);
      if (keep && !keep(span.at.b, span.head(n), span.at.q0 + span.query(n),
                        span.at.k0 + scores.first + bit))
        continue;
      add_multiple(rounded<Storage>(scores.z[bit]), w.values.data() + bit * s_.v_dim, s_.v_dim,
                   output);
    }
  }

  /// All query heads of one sequence that share a key/value head.
  void attend(const Span& span, Workspace<C>& w) const {
    this->load_queries(span, w);
    this->meet_sinks(span, w);
    C* const outputs = scratch(w.outputs, span.rows() * s_.v_dim);
    std::fill(outputs, outputs + span.rows() * s_.v_dim, C{0});
    this->walk(span, w, [&](std::int64_t n, Scores<C>& scores) { update(span, n, scores, w); });

    const auto kept = static_cast<C>(1 / (1 - p_.dropout_p));
    for (std::int64_t n = 0; n < span.rows(); ++n) {
      const std::int64_t h = span.head(n), i = span.at.q0 + span.query(n);
      const Softmax<C>& row = w.rows[static_cast<std::size_t>(n)];
      if (row.empty)
        write(span.at.b, h, i, nullptr, 0, row.max);
      else
        write(span.at.b, h, i, outputs + n * s_.v_dim, kept / row.sum, row.max + log(row.sum));
    }
  }
};

}  // namespace attest::chunked
