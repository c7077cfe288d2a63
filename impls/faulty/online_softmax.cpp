// SPDX-License-Identifier: Apache-2.0
// Faults of the online softmax: running maximum, rescaling, the sum of the weights, merging parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "online softmax";

template <class S>
struct ONotRescaled : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rescale(Row<C>& row, C factor) const override { row.sum *= factor; }
};
ATTEST_PLANT(ONotRescaled, {.id = "o_not_rescaled",
                            .kind = kKind,
                            .sentence = "the output is not rescaled where the maximum moves"});

template <class S>
struct LNotRescaled : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rescale(Row<C>& row, C factor) const override {
    for (C& o : row.o) o *= factor;
  }
};
ATTEST_PLANT(LNotRescaled, {.id = "l_not_rescaled",
                            .kind = kKind,
                            .sentence = "the sum is not rescaled where the maximum moves"});

template <class S>
struct LBeforeRescale : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    const C max = row.max, sum = row.sum;
    Stepwise<S>::absorb(row, block);
    if (max == this->kNone || row.max == max) return;
    const C factor = Stepwise<S>::rescale_factor(max, row.max);
    row.sum = (row.sum - sum * factor + sum) * factor;  // (sum + new) * factor
  }
};
ATTEST_PLANT(LBeforeRescale, {.id = "l_before_rescale",
                              .kind = kKind,
                              .sentence = "a block's weights enter the sum before it is rescaled"});

template <class S>
struct RescaleSkipped : Stepwise<S> {
  using typename Stepwise<S>::C;
  C rescale_factor(C before, C now) const override {
    const bool skipped = before != this->kNone && now - before < C{0.01};
    return skipped ? C{1} : Stepwise<S>::rescale_factor(before, now);
  }
};
ATTEST_PLANT(RescaleSkipped,
             {.id = "rescale_skipped_below_threshold",
              .kind = kKind,
              .sentence = "where the maximum rises by less than 0.01 nothing is rescaled"});

template <class S>
struct LMissesLastKey : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    if (seen.size() < 2) return Stepwise<S>::add_up(sum, seen);
    return Stepwise<S>::add_up(sum, {seen.begin(), seen.end() - 1});
  }
};
ATTEST_PLANT(LMissesLastKey, {.id = "l_misses_last_key",
                              .kind = kKind,
                              .sentence = "the last key of a block is missing in the sum"});

template <class S>
struct LMissesBlock3 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    if (block.first != 3 * this->key_block() || row.empty) return;
    SeenKeys<C> seen;
    for (std::int64_t n = 0; n < block.count; ++n) {
      const Key& k = block.keys[static_cast<std::size_t>(n)];
      if (!this->visible(row.query, k)) continue;
      const C z = this->score(row.query, k, row.q, block.k.data() + n * this->sizes.dim);
      if (z != this->kNone) seen.push_back({n, z, -this->weight(z, row.max)});
    }
    row.sum = this->add_up(row.sum, seen);
  }
};
ATTEST_PLANT(LMissesBlock3, {.id = "l_misses_fourth_block",
                             .kind = kKind,
                             .sentence = "the fourth block of 64 keys is missing in the sum"});

template <class S>
struct EqualMaxCountedOnce : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    SeenKeys<C> distinct = seen;
    distinct.erase(
        std::unique(distinct.begin(), distinct.end(),
                    [](const Seen<C>& a, const Seen<C>& b) { return a.z == b.z && a.p == 1; }),
        distinct.end());
    return Stepwise<S>::add_up(sum, distinct);
  }
};
ATTEST_PLANT(EqualMaxCountedOnce,
             {.id = "equal_max_counted_once",
              .kind = kKind,
              .sentence = "neighbouring keys that share the maximum are counted once in the sum"});

/// A running maximum that does not start at -inf.
template <class S>
struct MaxStartsElsewhere : Stepwise<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool with_sink) const override {
    Stepwise<S>::start(row, with_sink);
    if (row.max >= first()) return;
    row.sum *= std::exp(row.max - first());
    row.max = first();
  }
  Partial<C> finish(const Row<C>& row) const override {
    if (!row.empty) return Stepwise<S>::finish(row);
    Row<C> nothing = row;  // rows that see nothing are told apart before
    this->Stepwise<S>::start(nothing, true);
    return Stepwise<S>::finish(nothing);
  }
  virtual C first() const = 0;
};

template <class S>
struct MaxInitZero : MaxStartsElsewhere<S> {
  typename Stepwise<S>::C first() const override { return 0; }
};
ATTEST_PLANT(MaxInitZero,
             {.id = "max_init_zero", .kind = kKind, .sentence = "the running maximum starts at 0"});

template <class S>
struct MaxInitFltMin : MaxStartsElsewhere<S> {
  typename Stepwise<S>::C first() const override { return std::numeric_limits<float>::min(); }
};
ATTEST_PLANT(MaxInitFltMin,
             {.id = "max_init_flt_min",
              .kind = kKind,
              .sentence = "the running maximum starts at FLT_MIN, taken for the lowest number"});

template <class S>
struct MaxInitMinus100 : MaxStartsElsewhere<S> {
  typename Stepwise<S>::C first() const override { return -100; }
};
ATTEST_PLANT(MaxInitMinus100, {.id = "max_init_minus_100",
                               .kind = kKind,
                               .sentence = "the running maximum starts at -100"});

template <class S>
struct MaxOfAbs : Stepwise<S> {
  using typename Stepwise<S>::C;
  C next_max(C max, const SeenKeys<C>& seen) const override {
    for (const Seen<C>& key : seen) max = std::max(max, std::fabs(key.z));
    return max;
  }
};
ATTEST_PLANT(MaxOfAbs, {.id = "max_of_absolute_scores",
                        .kind = kKind,
                        .sentence = "the maximum is taken of |z|: strongly negative rows vanish"});

template <class S>
struct MaxNotSubtracted : Stepwise<S> {
  using typename Stepwise<S>::C;
  C next_max(C, const SeenKeys<C>&) const override { return 0; }
  void start(Row<C>& row, bool with_sink) const override {
    Stepwise<S>::start(row, with_sink);
    if (row.max == this->kNone) return;
    row.sum = std::exp(row.max);
    row.max = 0;
  }
};
ATTEST_PLANT(MaxNotSubtracted, {.id = "max_not_subtracted",
                                .kind = kKind,
                                .sentence = "exp is taken of the score itself"});

template <class S>
struct MaxOfFirstBlock : Stepwise<S> {
  using typename Stepwise<S>::C;
  C next_max(C max, const SeenKeys<C>& seen) const override {
    return max == this->kNone ? Stepwise<S>::next_max(max, seen) : max;
  }
};
ATTEST_PLANT(MaxOfFirstBlock, {.id = "max_of_first_block",
                               .kind = kKind,
                               .sentence = "the maximum of the first block serves for all"});

template <class S>
struct WeightsAtLeast : Stepwise<S> {
  using typename Stepwise<S>::C;
  C weight(C z, C max) const override { return std::exp(std::max(z - max, C{-10})); }
};
ATTEST_PLANT(WeightsAtLeast, {.id = "weights_at_least_e_minus_10",
                              .kind = kKind,
                              .sentence = "exp is never taken below -10"});

template <class S>
struct AlphaDrifts : Block8<S> {
  using typename Stepwise<S>::C;
  C rescale_factor(C before, C now) const override {
    if (before == this->kNone) return 0;
    const C log2e = static_cast<C>(1.4426950408889634);
    return std::exp2(std::fma(before, log2e, -(now * log2e)));
  }
};
ATTEST_PLANT(AlphaDrifts,
             {.id = "alpha_drifts",
              .kind = kKind,
              .sentence = "exp2(fma(m_old, c, -fl(m_new c))) is not 1 where the maximum stays",
              .base = "block_8"});

template <class S>
struct SplitMergeIgnoresMax : Split4<S> {
  using typename Stepwise<S>::C;
  void sweep(const Sequence& at, std::int64_t h, Span keys,
             std::vector<Row<C>>& rows) const override {
    Stepwise<S>::sweep(at, h, keys, rows);
    for (Row<C>& row : rows)
      if (!row.empty) row.max = 0;
  }
};
ATTEST_PLANT(SplitMergeIgnoresMax,
             {.id = "split_merge_ignores_max",
              .kind = kKind,
              .sentence = "parts are merged by their sums, whatever their maxima",
              .base = "split_4"});

template <class S>
struct SplitMergeMean : Split4<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = Stepwise<S>::merge(q, parts);
    C count = 0;
    for (const Partial<C>& part : parts) count += part.lse != this->kNone;
    if (count == 0) return whole;
    whole.o.assign(whole.o.size(), C{0});
    for (const Partial<C>& part : parts)
      for (std::size_t c = 0; part.lse != this->kNone && c < whole.o.size(); ++c)
        whole.o[c] += part.o[c] / count;
    return whole;
  }
};
ATTEST_PLANT(SplitMergeMean, {.id = "split_merge_averages",
                              .kind = kKind,
                              .sentence = "the outputs of the parts are averaged",
                              .base = "split_4"});

template <class S>
struct EmptySplitMerged : Split4<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    if (row.empty && row.sum == 0) part.lse = 0;
    return part;
  }
};
ATTEST_PLANT(EmptySplitMerged, {.id = "empty_split_merged",
                                .kind = kKind,
                                .sentence = "a part that sees nothing is merged with weight 1",
                                .reference = "pytorch/torchtitan#3235",
                                .base = "split_4"});

template <class S>
struct MergeIdentityNaN : Split4<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = Stepwise<S>::merge(q, parts);
    if (whole.lse == this->kNone)
      for (C& o : whole.o) o *= std::exp(parts.front().lse - whole.lse);
    return whole;
  }
};
ATTEST_PLANT(MergeIdentityNaN, {.id = "merge_identity_nan",
                                .kind = kKind,
                                .sentence = "parts that all see nothing are merged by -inf - -inf",
                                .reference = "flashinfer-ai/flashinfer#4051",
                                .base = "split_4"});

template <class S>
struct LastSplitShort : Split4<S> {
  Span split_keys(const Sequence& at, int split) const override {
    const std::int64_t each = std::max<std::int64_t>(1, at.keys() / 4);  // rounded down
    const Span keys{std::min(at.keys(), split * each), std::min(at.keys(), (split + 1) * each)};
    return keys;
  }
};
ATTEST_PLANT(LastSplitShort,
             {.id = "split_remainder_lost",
              .kind = kKind,
              .sentence = "keys are divided rounding down, and those left over are in no part",
              .base = "split_4"});

template <class S>
struct LseOfLastSplit : Split4<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = Stepwise<S>::merge(q, parts);
    for (const Partial<C>& part : parts)
      if (part.lse != this->kNone) whole.lse = part.lse;
    return whole;
  }
};
ATTEST_PLANT(LseOfLastSplit, {.id = "lse_of_last_split",
                              .kind = kKind,
                              .sentence = "lse is that of the last part, o is right",
                              .base = "split_4"});

template <class S>
struct SinkPerSplit : Split4<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool) const override { Stepwise<S>::start(row, true); }
};
ATTEST_PLANT(SinkPerSplit, {.id = "sink_per_split",
                            .kind = kKind,
                            .sentence = "every part counts the sink",
                            .reference = "ROCm/rocm-libraries#12229",
                            .base = "split_4"});

template <class S>
struct SinkLostWhenSplitEmpty : Split4<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    if (row.empty) part.lse = this->kNone;
    return part;
  }
};
ATTEST_PLANT(SinkLostWhenSplitEmpty,
             {.id = "sink_lost_when_split_empty",
              .kind = kKind,
              .sentence = "the sink is lost where the part that holds it sees no key",
              .base = "split_4"});

}  // namespace
}  // namespace attest::faulty
