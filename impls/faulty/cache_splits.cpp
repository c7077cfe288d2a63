// SPDX-License-Identifier: Apache-2.0
// Faults of splitting the keys of a row into parts, and of merging these.
#include <algorithm>
#include <cmath>
#include <vector>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/honest.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache splits";

template <class S>
struct CacheSinkPerSplit : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool) const override { StepwiseDecode<S>::start(row, true); }
};
ATTEST_PLANT(CacheSinkPerSplit, {.id = "decode_sink_per_split",
                                 .kind = kKind,
                                 .sentence = "every split counts the sink",
                                 .reference = "ROCm/rocm-libraries#12229",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheSinkLost : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = StepwiseDecode<S>::finish(row);
    if (row.empty && this->num_splits(*row.query.sequence) > 1) part.lse = this->kNone;
    return part;
  }
};
ATTEST_PLANT(CacheSinkLost, {.id = "decode_sink_lost_when_split_empty",
                             .kind = kKind,
                             .sentence = "a first split that sees no key loses the sink",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheEmptyNaN : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = StepwiseDecode<S>::merge(q, parts);
    C max = parts.front().lse;
    for (const Partial<C>& part : parts) {
      max = std::max(max, part.lse);
      const C share = std::exp(part.lse - max);
      if (share == share) continue;
      for (C& o : whole.o) o = share;
    }
    return whole;
  }
};
ATTEST_PLANT(CacheEmptyNaN, {.id = "decode_empty_splits_nan",
                             .kind = kKind,
                             .sentence = "splits that see nothing are merged through -inf - -inf",
                             .reference = "flashinfer-ai/flashinfer#4051",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheEmptyWeighs : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = StepwiseDecode<S>::finish(row);
    if (part.lse == this->kNone && this->num_splits(*row.query.sequence) > 1) part.lse = 0;
    return part;
  }
};
ATTEST_PLANT(CacheEmptyWeighs, {.id = "decode_empty_split_merged",
                                .kind = kKind,
                                .sentence = "a split that sees nothing is merged with weight 1",
                                .reference = "pytorch/torchtitan#3235",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheMergeNoMax : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C log_sum(const Row<C>& row) const override {
    const bool parts = this->num_splits(*row.query.sequence) > 1;
    return parts && !row.empty ? std::log(row.sum) : StepwiseDecode<S>::log_sum(row);
  }
};
ATTEST_PLANT(CacheMergeNoMax,
             {.id = "decode_split_merge_ignores_max",
              .kind = kKind,
              .sentence = "splits are merged by their sums, whatever maximum these are relative to",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheMergeAverages : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = StepwiseDecode<S>::merge(q, parts);
    C count = 0;
    for (const Partial<C>& part : parts) count += part.lse != this->kNone;
    if (count < 2) return whole;
    whole.o.assign(whole.o.size(), C{0});
    for (const Partial<C>& part : parts)
      for (std::size_t c = 0; part.lse != this->kNone && c < whole.o.size(); ++c)
        whole.o[c] += part.o[c] / count;
    return whole;
  }
};
ATTEST_PLANT(CacheMergeAverages,
             {.id = "decode_split_merge_averages",
              .kind = kKind,
              .sentence = "the outputs of the splits that see something are averaged",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheLastLse : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = StepwiseDecode<S>::merge(q, parts);
    whole.lse = parts.back().lse;
    return whole;
  }
};
ATTEST_PLANT(CacheLastLse, {.id = "decode_lse_of_last_split",
                            .kind = kKind,
                            .sentence = "o is merged, lse is that of the last split",
                            .base = "decode",
                            .declares = kDecode});

template <class S>
struct CacheLargestWins : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query&, const std::vector<Partial<C>>& parts) const override {
    const Partial<C>* largest = &parts.front();
    for (const Partial<C>& part : parts)
      if (part.lse > largest->lse) largest = &part;
    return *largest;
  }
};
ATTEST_PLANT(CacheLargestWins, {.id = "decode_largest_split_wins",
                                .kind = kKind,
                                .sentence = "the answer is that of the split with the largest lse",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheLseRounded : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    std::vector<Partial<C>> rounded = parts;
    for (Partial<C>& part : rounded)
      if (parts.size() > 1) part.lse = to_bits(part.lse, 8);
    return StepwiseDecode<S>::merge(q, rounded);
  }
};
ATTEST_PLANT(CacheLseRounded,
             {.id = "decode_split_lse_in_bf16",
              .kind = kKind,
              .sentence = "the lse of a split passes through bf16 on its way to the merge",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheMergeUnnormalised : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    Partial<C> whole = StepwiseDecode<S>::merge(q, parts);
    C max = this->kNone;
    for (const Partial<C>& part : parts) max = std::max(max, part.lse);
    if (max == this->kNone) return whole;
    for (C& o : whole.o) o *= std::exp(whole.lse - max);
    return whole;
  }
};
ATTEST_PLANT(
    CacheMergeUnnormalised,
    {.id = "decode_split_shares_not_normalised",
     .kind = kKind,
     .sentence = "splits are added with exp(lse_s - max lse), and the sum of these is left out",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheRemainderLost : StepwiseDecode<S> {
  Span split_keys(const Sequence& at, int split) const override {
    const std::int64_t each = at.keys() / this->num_splits(at);
    return {split * each, (split + 1) * each};
  }
};
ATTEST_PLANT(CacheRemainderLost,
             {.id = "decode_num_splits_dependent",
              .kind = kKind,
              .sentence = "keys that do not divide evenly among the splits are lost",
              .reference = "Dao-AILab/flash-attention#1217",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheSplitsOverlap : StepwiseDecode<S> {
  Span split_keys(const Sequence& at, int split) const override {
    const Span span = StepwiseDecode<S>::split_keys(at, split);
    return {span.begin, std::min(at.keys(), span.end + 1)};
  }
};
ATTEST_PLANT(CacheSplitsOverlap,
             {.id = "decode_splits_overlap",
              .kind = kKind,
              .sentence = "the first key of a split is in the one before as well",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheSplitOneBlock : StepwiseDecode<S> {
  Span split_keys(const Sequence& at, int split) const override {
    if (this->problem.num_splits < 1) return StepwiseDecode<S>::split_keys(at, split);
    return {std::min(at.keys(), split * this->key_block()),
            std::min(at.keys(), (split + 1) * this->key_block())};
  }
  std::int64_t key_block() const override { return 16; }
};
ATTEST_PLANT(CacheSplitOneBlock,
             {.id = "decode_split_takes_one_block",
              .kind = kKind,
              .sentence = "a split takes one block of keys; what is left after the last is lost",
              .base = "decode_block_16",
              .declares = kDecode});

template <class S>
struct CacheSplitsOfCached : StepwiseDecode<S> {
  Span split_keys(const Sequence& at, int split) const override {
    if (this->num_splits(at) < 2) return StepwiseDecode<S>::split_keys(at, split);
    Sequence cached = at;
    cached.k1 = at.offset;
    return StepwiseDecode<S>::split_keys(cached, split);
  }
};
ATTEST_PLANT(
    CacheSplitsOfCached,
    {.id = "decode_splits_cached_keys_alone",
     .kind = kKind,
     .sentence = "only cached keys are split; with more than one split the new ones are lost",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheSplitsByLongest : StepwiseDecode<S> {
  int splits_by_default(const Sequence&) const override {
    return static_cast<int>(1 + this->sizes.kv_len / 8);
  }
  int num_splits(const Sequence& at) const override {
    const std::int64_t most = std::max<std::int64_t>(1, at.keys());
    return static_cast<int>(std::min<std::int64_t>(StepwiseDecode<S>::num_splits(at), most));
  }
};
ATTEST_PLANT(
    CacheSplitsByLongest,
    {.id = "decode_splits_by_longest",
     .kind = kKind,
     .sentence = "the longest sequence of the batch decides into how many parts all are split",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheSplitsByThreads : StepwiseDecode<S> {
  int splits_by_default(const Sequence&) const override { return this->context.num_threads; }
};
ATTEST_PLANT(
    CacheSplitsByThreads,
    {.id = "decode_splits_by_threads",
     .kind = kKind,
     .sentence = "keys are split by the number of threads where the caller does not choose",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheSplitsLow : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const override {
    if (parts.size() == 1) return parts.front();
    std::vector<Partial<C>> low = parts;
    for (Partial<C>& part : low) {
      part.lse = this->stored(part.lse);
      for (C& o : part.o) o = this->stored(o);
    }
    Partial<C> whole = StepwiseDecode<S>::merge(q, low);
    whole.lse = this->stored(whole.lse);
    return whole;
  }
};
ATTEST_PLANT(CacheSplitsLow, {.id = "decode_split_weights_low",
                              .kind = kKind,
                              .sentence = "o and lse of splits are kept in the storage type",
                              .dtypes = kNarrowTypes,
                              .base = "decode",
                              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
