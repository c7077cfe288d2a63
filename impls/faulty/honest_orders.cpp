// SPDX-License-Identifier: Apache-2.0
// Honest kernels that differ in block sizes, in the order of their sums, and in splitting the keys.
#include <algorithm>
#include <cmath>

#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest order";

ATTEST_HONEST(Stepwise,
              {.id = "stepwise", .kind = kKind, .sentence = "the stepwise kernel as it stands"});
ATTEST_HONEST(Split4, {.id = "split_4",
                       .kind = kKind,
                       .sentence = "keys in four parts, merged through their lse",
                       .base = "split_4"});
ATTEST_HONEST(Block8,
              {.id = "block_8", .kind = kKind, .sentence = "blocks of 8 keys", .base = "block_8"});

template <class S>
struct Block1 : Stepwise<S> {
  std::int64_t key_block() const override { return 1; }
};
ATTEST_HONEST(Block1,
              {.id = "block_1", .kind = kKind, .sentence = "one key at a time", .base = "block_1"});

template <class S>
struct Block16 : Stepwise<S> {
  std::int64_t key_block() const override { return 16; }
};
ATTEST_HONEST(Block16, {.id = "block_16",
                        .kind = kKind,
                        .sentence = "blocks of 16 keys",
                        .base = "block_16"});

template <class S>
struct Block128 : Stepwise<S> {
  std::int64_t key_block() const override { return 128; }
};
ATTEST_HONEST(Block128, {.id = "block_128",
                         .kind = kKind,
                         .sentence = "blocks of 128 keys",
                         .base = "block_128"});

ATTEST_HONEST(EveryBlock, {.id = "every_block",
                           .kind = kKind,
                           .sentence = "blocks that a tile cannot see are looked at too",
                           .base = "every_block"});

template <class S>
struct Block8Reversed : Block8<S> {
  using typename Stepwise<S>::C;
  void sweep(const Sequence& at, std::int64_t h, Span keys,
             std::vector<Row<C>>& rows) const override {
    for (std::int64_t end = keys.end; end > keys.begin; end -= this->key_block())
      Stepwise<S>::sweep(at, h, {std::max(keys.begin, end - this->key_block()), end}, rows);
  }
};
ATTEST_HONEST(Block8Reversed, {.id = "block_8_reversed",
                               .kind = kKind,
                               .sentence = "blocks of 8 keys, the last first",
                               .base = "block_8_reversed"});

template <class S>
struct Split7 : Stepwise<S> {
  int num_splits(const Sequence&) const override { return 7; }
  std::int64_t key_block() const override { return 16; }
};
ATTEST_HONEST(Split7, {.id = "split_7",
                       .kind = kKind,
                       .sentence = "keys in seven parts of blocks of 16",
                       .base = "split_7"});

template <class S>
struct SplitByLength : Stepwise<S> {
  int num_splits(const Sequence& at) const override {
    return static_cast<int>(std::max<std::int64_t>(1, (at.keys() + 31) / 32));
  }
};
ATTEST_HONEST(SplitByLength, {.id = "split_by_length",
                              .kind = kKind,
                              .sentence = "a part for every 32 keys",
                              .base = "split_by_length"});

/// The keys of a block in another order, both in the sum and in the output.
template <class S>
struct OtherOrder : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    return Stepwise<S>::add_up(sum, ordered(seen));
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    Stepwise<S>::accumulate(row, ordered(seen), block);
  }
  virtual SeenKeys<C> ordered(SeenKeys<C> seen) const = 0;
};

template <class S>
struct KeysReversed : OtherOrder<S> {
  using typename Stepwise<S>::C;
  SeenKeys<C> ordered(SeenKeys<C> seen) const override {
    std::reverse(seen.begin(), seen.end());
    return seen;
  }
};
ATTEST_HONEST(KeysReversed, {.id = "keys_reversed",
                             .kind = kKind,
                             .sentence = "the last key of a block is added first",
                             .base = "keys_reversed"});

template <class S>
struct KeysShuffled : OtherOrder<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return kMaxKeyBlock; }
  SeenKeys<C> ordered(SeenKeys<C> seen) const override {
    std::uint32_t state = 12345;
    for (std::size_t n = seen.size(); n > 1; --n) {
      state = state * 1664525u + 1013904223u;
      std::swap(seen[n - 1], seen[state / 65536u % n]);
    }
    return seen;
  }
};
ATTEST_HONEST(KeysShuffled, {.id = "keys_shuffled",
                             .kind = kKind,
                             .sentence = "the keys of a block are added in a scattered order",
                             .base = "keys_shuffled"});

/// Sums of a block as a binary tree.
template <class S>
struct Pairwise : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    std::vector<C> terms;
    for (const Seen<C>& key : seen) terms.push_back(key.p);
    return sum + tree(terms);
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    std::vector<C> terms;
    for (std::size_t c = 0; c < row.o.size(); ++c) {
      terms.clear();
      for (const Seen<C>& key : seen)
        terms.push_back(key.p * block.v[static_cast<std::size_t>(key.n * this->sizes.v_dim) + c]);
      row.o[c] += tree(terms);
    }
  }
  C dot(const C* a, const C* b, std::int64_t n) const override {
    std::vector<C> terms;
    for (std::int64_t c = 0; c < n; ++c) terms.push_back(a[c] * b[c]);
    return tree(terms);
  }
  static C tree(std::vector<C>& terms) {
    if (terms.empty()) return 0;
    for (std::size_t step = 1; step < terms.size(); step *= 2)
      for (std::size_t n = 0; n + step < terms.size(); n += 2 * step) terms[n] += terms[n + step];
    return terms.front();
  }
};
ATTEST_HONEST(Pairwise, {.id = "pairwise",
                         .kind = kKind,
                         .sentence = "sums of a block are binary trees",
                         .base = "pairwise"});

template <class S>
struct BlockSums : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    return sum + Stepwise<S>::add_up(0, seen);
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    Row<C> own = row;
    own.o.assign(own.o.size(), C{0});
    Stepwise<S>::accumulate(own, seen, block);
    for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] += own.o[c];
  }
};
ATTEST_HONEST(BlockSums, {.id = "block_sums",
                          .kind = kKind,
                          .sentence = "a block is summed by itself, then added",
                          .base = "block_sums"});

template <class S>
struct EightLanes : Stepwise<S> {
  using typename Stepwise<S>::C;
  C dot(const C* a, const C* b, std::int64_t n) const override {
    C lanes[8] = {};
    for (std::int64_t c = 0; c < n; ++c) lanes[c % 8] += a[c] * b[c];
    for (int width = 4; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    return lanes[0];
  }
};
ATTEST_HONEST(EightLanes, {.id = "eight_lanes",
                           .kind = kKind,
                           .sentence = "dot products in eight lanes",
                           .base = "eight_lanes"});

template <class S>
struct SinkLast : Stepwise<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool) const override { Stepwise<S>::start(row, false); }
  Partial<C> finish(const Row<C>& row) const override {
    const C sink = this->sink(row.query.h);
    if (sink == this->kNone) return Stepwise<S>::finish(row);
    Row<C> with = row;
    if (row.empty) {
      Stepwise<S>::start(with, true);
    } else {
      with.max = sink > row.max ? sink : row.max;
      this->rescale(with, this->rescale_factor(row.max, with.max));
      with.sum += std::exp(sink - with.max);
    }
    return Stepwise<S>::finish(with);
  }
};
ATTEST_HONEST(SinkLast, {.id = "sink_last",
                         .kind = kKind,
                         .sentence = "the sink is added after the keys",
                         .base = "sink_last"});

}  // namespace
}  // namespace attest::faulty
