// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in what belongs to a row: dO, delta, lse and its gradient, the sink.
#include <algorithm>
#include <cmath>
#include <limits>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "backward rows";
constexpr const char* kSink = "backward sink";
constexpr double kLog2e = 1.4426950408889634;

template <class S>
struct DeltaDropped : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C delta(const GradientRow<C>&) const override { return 0; }
};
ATTEST_PLANT(DeltaDropped, {.id = "delta_dropped",
                            .kind = kKind,
                            .sentence = "dS is P dP: delta is left out",
                            .base = "backward",
                            .declares = kBackward});

template <class S>
struct DeltaBeforeDropout : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C delta(const GradientRow<C>& row) const override {
    return StepwiseBackward<S>::delta(row) / this->keep_factor();
  }
};
ATTEST_PLANT(DeltaBeforeDropout,
             {.id = "delta_without_dropout_factor",
              .kind = kKind,
              .sentence = "delta is taken of o as it was before 1/(1 - p) was multiplied to it",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DeltaOfFirstTile : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_out(const Query& q, C* to) const override {
    Query at = q;
    at.row = q.sequence->q0 + (q.row - q.sequence->q0) % kQueryTile;
    StepwiseBackward<S>::load_out(at, to);
  }
};
ATTEST_PLANT(DeltaOfFirstTile,
             {.id = "delta_of_first_tile",
              .kind = kKind,
              .sentence = "delta is read by the row of the tile: rows from 64 on take another's",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DeltaByKvHead : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_out(const Query& q, C* to) const override {
    Query at = q;
    at.h = this->kv_head(q.h);
    StepwiseBackward<S>::load_out(at, to);
  }
};
ATTEST_PLANT(DeltaByKvHead, {.id = "delta_of_kv_head",
                             .kind = kKind,
                             .sentence = "o is read by key/value head, as k and v beside it are",
                             .base = "backward",
                             .declares = kBackward});

template <class S>
struct DLseIgnored : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_lse(const Query&) const override { return 0; }
};
ATTEST_PLANT(DLseIgnored,
             {.id = "d_lse_ignored",
              .kind = kKind,
              .sentence = "the gradient of lse is accepted and ignored, as if lse were no output",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DLseSign : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_lse(const Query& q) const override { return -StepwiseBackward<S>::d_lse(q); }
};
ATTEST_PLANT(DLseSign, {.id = "d_lse_sign_flipped",
                        .kind = kKind,
                        .sentence = "dLSE is folded into delta with delta's sign",
                        .base = "backward",
                        .declares = kBackward});

template <class S>
struct DLseInBase2 : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_lse(const Query& q) const override {
    return StepwiseBackward<S>::d_lse(q) * static_cast<C>(kLog2e);
  }
};
ATTEST_PLANT(DLseInBase2, {.id = "d_lse_for_base_2",
                           .kind = kKind,
                           .sentence = "dLSE is taken for the gradient of lse / ln 2",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DLseTransposed : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  // [B, Hq, Lq] read as [B, Lq, Hq].
  C d_lse(const Query& q) const override {
    const std::int64_t flat = q.row * this->sizes.heads + q.h;
    Query at = q;
    at.h = flat / this->sizes.q_len;
    at.row = flat % this->sizes.q_len;
    return StepwiseBackward<S>::d_lse(at);
  }
};
ATTEST_PLANT(DLseTransposed, {.id = "d_lse_read_row_major",
                              .kind = kKind,
                              .sentence = "dLSE [B, H, L] is read as if heads lay innermost",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct LseOfBase2 : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C weight_again(const GradientRow<C>& row, C z) const override {
    return std::exp2(z * static_cast<C>(kLog2e) - row.lse);
  }
};
ATTEST_PLANT(LseOfBase2,
             {.id = "lse_taken_for_base_2",
              .kind = kKind,
              .sentence = "P is exp2(z log2 e - lse), though forward wrote the natural logarithm",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct LseStored : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C lse(const Query& q) const override { return this->stored(StepwiseBackward<S>::lse(q)); }
};
ATTEST_PLANT(LseStored, {.id = "lse_saved_in_storage_type",
                         .kind = kKind,
                         .sentence = "lse is saved for backward in 16 bits, like o",
                         .dtypes = kNarrowTypes,
                         .base = "backward",
                         .declares = kBackward});

template <class S>
struct BackwardEmptyRowNaN : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  // Every key of the tile goes through exp(z - lse), which is exp(-inf + inf) in an empty row.
  bool takes_part(const GradientRow<C>& row, C z) const override {
    return row.lse == this->kNone || StepwiseBackward<S>::takes_part(row, z);
  }
};
ATTEST_PLANT(BackwardEmptyRowNaN, {.id = "empty_row_backward_nan",
                                   .kind = kKind,
                                   .sentence = "a row without a key has P = exp(-inf + inf)",
                                   .reference = "Dao-AILab/flash-attention#443",
                                   .base = "backward",
                                   .declares = kBackward});

template <class S>
struct EmptyRowUniform : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  // As softmax over a finite sentinel has it.
  bool takes_part(const GradientRow<C>& row, C z) const override {
    return row.lse == this->kNone || StepwiseBackward<S>::takes_part(row, z);
  }
  C weight_again(const GradientRow<C>& row, C z) const override {
    if (row.lse != this->kNone) return StepwiseBackward<S>::weight_again(row, z);
    return C{1} / static_cast<C>(row.query.sequence->keys());
  }
};
ATTEST_PLANT(EmptyRowUniform,
             {.id = "empty_row_uniform_in_backward",
              .kind = kKind,
              .sentence = "a row without a key weighs all alike in backward, as -1e9 for -inf does",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct ZeroDOutNaN : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_d_out(const Query& q, C* to) const override {
    StepwiseBackward<S>::load_d_out(q, to);
    // Rows are divided by their largest entry to use the range of the type.
    if (std::all_of(to, to + this->sizes.v_dim, [](C x) { return x == 0; }))
      std::fill_n(to, this->sizes.v_dim, std::numeric_limits<C>::quiet_NaN());
  }
};
ATTEST_PLANT(ZeroDOutNaN, {.id = "zero_dout_row_nan",
                           .kind = kKind,
                           .sentence = "rows of dO are scaled by their largest entry, also by 0",
                           .reference = "pytorch/pytorch#196170",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct NaNDOutZero : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_d_out(const Query& q, C* to) const override {
    StepwiseBackward<S>::load_d_out(q, to);
    std::replace_if(
        to, to + this->sizes.v_dim, [](C x) { return std::isnan(x); }, C{0});
  }
};
ATTEST_PLANT(NaNDOutZero, {.id = "nan_dout_becomes_zero",
                           .kind = kKind,
                           .sentence = "NaN in dO is clamped away, and the step goes on unnoticed",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct PaddingTimesZero : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void clear_gradients() const override {
    StepwiseBackward<S>::clear_gradients();
    if (!this->problem.d_q || this->sizes.v_dim == 0) return;
    for (std::int64_t b = 0; b < this->sizes.batch; ++b)
      for (std::int64_t h = 0; h < this->sizes.heads; ++h)
        for (std::int64_t row = 0; row < this->sizes.q_len; ++row) {
          const C masked = widen(*row_of<S>(this->problem.d_o, b, h, row)) * 0;
          const std::vector<C> d_q(static_cast<std::size_t>(this->sizes.dim), masked);
          this->write_d_q({nullptr, b, h, row, 0}, d_q.data());
        }
  }
};
ATTEST_PLANT(PaddingTimesZero,
             {.id = "padding_dq_masked_by_product",
              .kind = kKind,
              .sentence = "dQ of padding rows is junk times 0: NaN where the junk is",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct PForgetsSink : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C weight_again(const GradientRow<C>& row, C z) const override {
    const C sink = this->sink(row.query.h), p = StepwiseBackward<S>::weight_again(row, z);
    return sink == this->kNone ? p : p / (1 - std::exp(sink - row.lse));
  }
};
ATTEST_PLANT(PForgetsSink,
             {.id = "sink_not_in_backward_weights",
              .kind = kSink,
              .sentence = "P is normalised over the keys alone when it is formed again",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DSinkZero : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_sink(const GradientRow<C>&) const override { return 0; }
};
ATTEST_PLANT(DSinkZero, {.id = "gradient_silently_zero",
                         .kind = kSink,
                         .sentence = "dSink is written as 0: the sink was detached from the graph",
                         .base = "backward",
                         .declares = kBackward});

template <class S>
struct DSinkMissesDelta : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_sink(const GradientRow<C>& row) const override {
    GradientRow<C> without = row;
    without.delta = 0;
    return StepwiseBackward<S>::d_sink(without);
  }
};
ATTEST_PLANT(DSinkMissesDelta,
             {.id = "d_sink_misses_delta",
              .kind = kSink,
              .sentence = "the sink has no v, so that its delta is thought to be none",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DSinkNotNormalised : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_sink(const GradientRow<C>& row) const override {
    const C sink = this->sink(row.query.h);
    if (sink == this->kNone || row.silent || row.empty) return StepwiseBackward<S>::d_sink(row);
    return std::exp(sink) * (row.d_lse - row.delta);
  }
};
ATTEST_PLANT(DSinkNotNormalised, {.id = "d_sink_without_lse",
                                  .kind = kSink,
                                  .sentence = "dSink weighs rows by exp(sink), not exp(sink - lse)",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct DSinkForgetsDLse : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_sink(const GradientRow<C>& row) const override {
    GradientRow<C> without = row;
    without.d_lse = 0;
    return StepwiseBackward<S>::d_sink(without);
  }
};
ATTEST_PLANT(DSinkForgetsDLse, {.id = "d_sink_misses_d_lse",
                                .kind = kSink,
                                .sentence = "dSink counts dO alone, though lse holds the sink too",
                                .base = "backward",
                                .declares = kBackward});

template <class S>
struct DSinkEmptyRows : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_sink(const GradientRow<C>& row) const override {
    return row.empty ? C{0} : StepwiseBackward<S>::d_sink(row);
  }
};
ATTEST_PLANT(DSinkEmptyRows,
             {.id = "d_sink_skips_empty_rows",
              .kind = kSink,
              .sentence = "rows without a key are left early, before their dLSE reaches the sink",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DSinkOfLastSequence : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void write_d_sink(const HeadGradients& heads) const override {
    HeadGradients last = heads;
    const std::int64_t before = (this->sizes.sequences - 1) * this->sizes.heads;
    if (before > 0) std::fill_n(last.d_sink.begin(), before, 0);
    StepwiseBackward<S>::write_d_sink(last);
  }
};
ATTEST_PLANT(DSinkOfLastSequence,
             {.id = "d_sink_not_summed_over_batch",
              .kind = kSink,
              .sentence = "each sequence writes dSink in place of adding to it",
              .base = "backward",
              .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
