// SPDX-License-Identifier: Apache-2.0
// Faults of dropout and of the sink.
#include <cmath>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kDropout = "dropout";
constexpr const char* kSink = "sink";

template <class S>
struct DropoutBeforeSoftmax : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    return (!this->problem.keep || this->kept(q, k)) && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(DropoutBeforeSoftmax, {.id = "dropout_before_softmax",
                                    .kind = kDropout,
                                    .sentence = "what is dropped is missing in the sum too"});

template <class S>
struct DropoutRenormalised : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    if (!this->problem.keep) return;
    // o counts kept weights alone; so does the sum that it is divided by, but not that of lse.
    for (std::int64_t n = 0; n < block.count; ++n) {
      const Key& k = block.keys[static_cast<std::size_t>(n)];
      if (!this->visible(row.query, k) || this->kept(row.query, k)) continue;
      const C z = this->score(row.query, k, row.q, block.k.data() + n * this->sizes.dim);
      if (z != this->kNone) row.sum -= this->weight(z, row.max);
    }
  }
  C keep_factor() const override { return 1; }
};
ATTEST_PLANT(DropoutRenormalised,
             {.id = "dropout_renormalised",
              .kind = kDropout,
              .sentence = "kept weights are made to sum to 1 again instead of divided by 1 - p"});

template <class S>
struct DropoutNotScaled : Stepwise<S> {
  typename Stepwise<S>::C keep_factor() const override { return 1; }
};
ATTEST_PLANT(DropoutNotScaled, {.id = "dropout_not_scaled",
                                .kind = kDropout,
                                .sentence = "kept weights are not divided by 1 - p"});

template <class S>
struct DropoutScaledTwice : Stepwise<S> {
  typename Stepwise<S>::C keep_factor() const override {
    return Stepwise<S>::keep_factor() * Stepwise<S>::keep_factor();
  }
};
ATTEST_PLANT(DropoutScaledTwice, {.id = "dropout_scaled_twice",
                                  .kind = kDropout,
                                  .sentence = "kept weights are divided by 1 - p twice"});

template <class S>
struct DropoutScaledByP : Stepwise<S> {
  using typename Stepwise<S>::C;
  C keep_factor() const override {
    return this->problem.dropout_p > 0 ? static_cast<C>(1 / this->problem.dropout_p) : C{1};
  }
};
ATTEST_PLANT(DropoutScaledByP, {.id = "dropout_scaled_by_p",
                                .kind = kDropout,
                                .sentence = "kept weights are divided by p instead of 1 - p"});

template <class S>
struct DropoutInverted : Stepwise<S> {
  bool kept(const Query& q, const Key& k) const override { return !Stepwise<S>::kept(q, k); }
};
ATTEST_PLANT(DropoutInverted, {.id = "dropout_inverted",
                               .kind = kDropout,
                               .sentence = "what should be kept is dropped and the reverse"});

template <class S>
struct DropoutLse : Stepwise<S> {
  using typename Stepwise<S>::C;
  C log_sum(const Row<C>& row) const override {
    return Stepwise<S>::log_sum(row) + (row.empty ? C{0} : std::log(this->keep_factor()));
  }
};
ATTEST_PLANT(DropoutLse, {.id = "dropout_factor_in_lse",
                          .kind = kDropout,
                          .sentence = "lse carries the factor 1/(1 - p)"});

template <class S>
struct DropoutHead0 : Stepwise<S> {
  bool kept(const Query& q, const Key& k) const override {
    Query at = q;
    at.h = 0;
    return Stepwise<S>::kept(at, k);
  }
};
ATTEST_PLANT(DropoutHead0, {.id = "dropout_of_head_0",
                            .kind = kDropout,
                            .sentence = "all heads drop what head 0 drops"});

template <class S>
struct DropoutSeedConstant : Stepwise<S> {
  bool kept(const Query& q, const Key& k) const override {
    Query at = q;
    at.b = 0;
    at.row = q.row % kQueryTile;
    return Stepwise<S>::kept(at, k);
  }
};
ATTEST_PLANT(DropoutSeedConstant,
             {.id = "dropout_seed_constant",
              .kind = kDropout,
              .sentence = "every sequence and every tile drops what the first one drops",
              .reference = "Dao-AILab/flash-attention#2088"});

template <class S>
struct DropoutTransposed : Stepwise<S> {
  bool kept(const Query& q, const Key& k) const override {
    if (this->sizes.q_len != this->sizes.kv_len) return Stepwise<S>::kept(q, k);
    Query at = q;
    at.row = k.row;
    return Stepwise<S>::kept(at, {q.row, k.position});
  }
};
ATTEST_PLANT(DropoutTransposed,
             {.id = "dropout_transposed",
              .kind = kDropout,
              .sentence = "the keep mask is read with rows and columns exchanged"});

template <class S>
struct DropoutPInBf16 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C keep_factor() const override {
    return static_cast<C>(1 / (1 - round_to(DType::bf16, this->problem.dropout_p)));
  }
};
ATTEST_PLANT(DropoutPInBf16, {.id = "dropout_p_rounded_to_bf16",
                              .kind = kDropout,
                              .sentence = "p is kept in bf16"});

template <class S>
struct SinkDropped : Stepwise<S> {
  typename Stepwise<S>::C sink(std::int64_t) const override { return this->kNone; }
};
ATTEST_PLANT(SinkDropped, {.id = "sink_dropped", .kind = kSink, .sentence = "the sink is ignored"});

template <class S>
struct SinkNotInLse : Stepwise<S> {
  using typename Stepwise<S>::C;
  C log_sum(const Row<C>& row) const override {
    const C sink = this->sink(row.query.h);
    if (sink == this->kNone || row.empty) return Stepwise<S>::log_sum(row);
    return row.max + std::log(row.sum - std::exp(sink - row.max));
  }
};
ATTEST_PLANT(SinkNotInLse, {.id = "sink_not_in_lse",
                            .kind = kSink,
                            .sentence = "the sink counts for o, but not for lse"});

template <class S>
struct SinkInLseOnly : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    const C sink = this->sink(row.query.h);
    if (sink == this->kNone || row.empty) return part;
    for (C& o : part.o) o *= row.sum / (row.sum - std::exp(sink - row.max));
    return part;
  }
};
ATTEST_PLANT(SinkInLseOnly, {.id = "sink_in_lse_only",
                             .kind = kSink,
                             .sentence = "the sink counts for lse, but not for o"});

template <class S>
struct SinkScaled : Stepwise<S> {
  using typename Stepwise<S>::C;
  C sink(std::int64_t h) const override {
    const C sink = Stepwise<S>::sink(h);
    return sink == this->kNone ? sink : sink * static_cast<C>(this->problem.scale);
  }
};
ATTEST_PLANT(SinkScaled,
             {.id = "sink_scaled", .kind = kSink, .sentence = "the sink is scaled like a score"});

template <class S>
struct SinkSoftcapped : Stepwise<S> {
  using typename Stepwise<S>::C;
  C sink(std::int64_t h) const override {
    const C sink = Stepwise<S>::sink(h);
    return sink == this->kNone || !(this->problem.softcap > 0) ? sink : this->capped(sink);
  }
};
ATTEST_PLANT(SinkSoftcapped, {.id = "sink_softcapped",
                              .kind = kSink,
                              .sentence = "the sink passes through the softcap like a score"});

template <class S>
struct SinkOfHead0 : Stepwise<S> {
  typename Stepwise<S>::C sink(std::int64_t) const override { return Stepwise<S>::sink(0); }
};
ATTEST_PLANT(SinkOfHead0,
             {.id = "sink_of_head_0", .kind = kSink, .sentence = "all heads take head 0's sink"});

template <class S>
struct SinkOfKvHead : Stepwise<S> {
  typename Stepwise<S>::C sink(std::int64_t h) const override {
    return Stepwise<S>::sink(h / this->sizes.group);
  }
};
ATTEST_PLANT(SinkOfKvHead, {.id = "sink_of_kv_head",
                            .kind = kSink,
                            .sentence = "sinks are read by key/value head"});

template <class S>
struct SinkAsWeight : Stepwise<S> {
  using typename Stepwise<S>::C;
  C sink(std::int64_t h) const override {
    const C sink = Stepwise<S>::sink(h);
    return sink == this->kNone ? sink : std::log(std::fabs(sink));
  }
};
ATTEST_PLANT(SinkAsWeight, {.id = "sink_as_weight",
                            .kind = kSink,
                            .sentence = "the sink is added to the sum itself, not its exp"});

template <class S>
struct SinkExpOverflows : Stepwise<S> {
  using typename Stepwise<S>::C;
  // exp(sink) is added at the end, relative to the keys' maximum, and overflows above it.
  void start(Row<C>& row, bool) const override { Stepwise<S>::start(row, false); }
  Partial<C> finish(const Row<C>& row) const override {
    const C sink = this->sink(row.query.h);
    Row<C> with = row;
    if (row.empty)
      Stepwise<S>::start(with, true);
    else
      with.sum += std::exp(sink) * std::exp(-row.max);
    return Stepwise<S>::finish(with);
  }
};
ATTEST_PLANT(SinkExpOverflows, {.id = "sink_exp_overflows",
                                .kind = kSink,
                                .sentence = "exp(sink) and exp(-max) are taken apart and overflow",
                                .dtypes = "f32,f16,bf16"});

template <class S>
struct SinkOnlyFirstTile : Stepwise<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool with_sink) const override {
    const bool first = row.query.row - row.query.sequence->q0 < kQueryTile;
    Stepwise<S>::start(row, with_sink && first);
  }
};
ATTEST_PLANT(SinkOnlyFirstTile, {.id = "sink_first_tile_only",
                                 .kind = kSink,
                                 .sentence = "rows from 64 on have no sink"});

}  // namespace
}  // namespace attest::faulty
