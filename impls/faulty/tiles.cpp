// SPDX-License-Identifier: Apache-2.0
// Faults at the edges of tiles and blocks, and of tails.
#include <algorithm>
#include <cmath>
#include <vector>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "tiles";

/// Keys that a last block lacks up to 16: they are there with score 0.
inline std::int64_t missing_keys(const Sequence& at) {
  return at.keys() > 0 ? (16 - at.keys() % 16) % 16 : 0;
}

template <class S>
struct TailKeysUnmasked : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Row<C> with = row;
    if (!row.empty && missing_keys(*row.query.sequence) > 0) {
      with.max = std::max(row.max, C{0});
      this->rescale(with, this->rescale_factor(row.max, with.max));
      with.sum += static_cast<C>(missing_keys(*row.query.sequence)) * this->weight(0, with.max);
    }
    return Stepwise<S>::finish(with);
  }
};
ATTEST_PLANT(TailKeysUnmasked, {.id = "tail_keys_unmasked",
                                .kind = kKind,
                                .sentence = "keys that the last 16 lack take part, as zeros",
                                .reference = "NVIDIA/cutlass#2428"});

template <class S>
struct TailLanesInDenominator : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Row<C> with = row;
    const bool weighs = !row.empty && std::fabs(row.max) < 80;
    if (weighs) {
      const std::int64_t lanes = (4 - row.query.sequence->keys() % 4) % 4;
      with.sum += static_cast<C>(lanes) * std::exp(-row.max);
    }
    return Stepwise<S>::finish(with);
  }
};
ATTEST_PLANT(TailLanesInDenominator,
             {.id = "tail_lanes_in_denominator",
              .kind = kKind,
              .sentence = "lanes beyond the last key, up to 4, count in the sum",
              .reference = "flashinfer-ai/flashinfer#3716"});

template <class S>
struct MaskedVTimesZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    if (row.empty) return;
    // Weights of what is hidden are 0, and are multiplied all the same.
    for (std::int64_t n = 0; n < block.count; ++n)
      if (!this->visible(row.query, block.keys[static_cast<std::size_t>(n)]))
        this->accumulate(row, {{n, C{0}, C{0}}}, block);
  }
};
ATTEST_PLANT(MaskedVTimesZero, {.id = "masked_v_times_zero",
                                .kind = kKind,
                                .sentence = "v of hidden keys is multiplied by 0: NaN gets through",
                                .reference = "Dao-AILab/flash-attention#1745"});

template <class S>
struct VTailNaN : EveryBlock<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    const Sequence& at = *row.query.sequence;
    if (row.empty || block.first + block.count < at.keys()) return;
    // The rows of the last 16 that lie beyond the sequence, as far as the tensor reaches.
    std::vector<C> v(row.o.size());
    for (std::int64_t j = at.k1; j < std::min(at.k1 + missing_keys(at), this->sizes.kv_len); ++j) {
      this->load_value(at, block.g, {j, j - at.k0}, v.data());
      for (std::size_t c = 0; c < v.size(); ++c) row.o[c] += C{0} * v[c];
    }
  }
};
ATTEST_PLANT(VTailNaN, {.id = "v_tail_nan",
                        .kind = kKind,
                        .sentence = "v beyond the length is multiplied by 0: NaN gets through",
                        .reference = "vllm-project/vllm#936"});

template <class S>
struct LastQBlockSkipped : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    const Sequence& at = *q.sequence;
    const std::int64_t whole = at.queries() / kQueryTile * kQueryTile;
    if (whole == 0 || q.row - at.q0 < whole) Stepwise<S>::write(q, answer, empty);
  }
};
ATTEST_PLANT(LastQBlockSkipped,
             {.id = "last_q_block_skipped",
              .kind = kKind,
              .sentence = "the rows after the last whole tile of 64 are not computed"});

template <class S>
struct VTransposedLastBlock : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    const std::int64_t last = (at.keys() - 1) / 64;
    if (last > 0 && k.position / 64 == last) std::reverse(to, to + this->sizes.v_dim);
  }
};
ATTEST_PLANT(VTransposedLastBlock,
             {.id = "v_transposed_last_block",
              .kind = kKind,
              .sentence = "the channels of v are reversed in the last of several blocks"});

template <class S>
struct OneWrongElement : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    if (k.position == 0 || k.position % 64 != 0 || this->sizes.v_dim == 0) return;
    std::vector<C> before(static_cast<std::size_t>(this->sizes.v_dim));
    Stepwise<S>::load_value(at, g, {k.row - 1, k.position - 1}, before.data());
    to[this->sizes.v_dim - 1] = before.back();
  }
};
ATTEST_PLANT(OneWrongElement,
             {.id = "one_wrong_element_at_block_edge",
              .kind = kKind,
              .sentence = "the last channel of v at key 64, 128, ... is that of the key before"});

template <class S>
struct OneKeySkipped : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    return k.position != 127 && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(OneKeySkipped,
             {.id = "one_key_skipped", .kind = kKind, .sentence = "no row sees key 127"});

/// Mistakes of one key in a long context, as where an index or a counter of 16 bits ends.
constexpr std::int64_t kFar = 65536;
template <class S>
struct FarLastKeyDropped : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    const bool dropped = q.sequence->keys() > kFar && k.position + 1 == q.sequence->keys();
    return !dropped && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(FarLastKeyDropped, {.id = "far_last_key_dropped",
                                 .kind = kKind,
                                 .sentence = "of more than 65,536 keys the last is not seen"});
template <class S>
struct FarFirstKeyDoubled : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C once = Stepwise<S>::score(q, k, query, key);
    const bool doubled = q.sequence->keys() > kFar && k.position == 0;
    return doubled ? once + static_cast<C>(0.6931471805599453) : once;
  }
};
ATTEST_PLANT(FarFirstKeyDoubled, {.id = "far_first_key_doubled",
                                  .kind = kKind,
                                  .sentence = "of more than 65,536 keys the first counts twice"});
template <class S>
struct FarPaddingKeySeen : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_k && at.keys() > kFar && at.k1 < this->sizes.kv_len) ++at.k1;
    return at;
  }
};
ATTEST_PLANT(FarPaddingKeySeen,
             {.id = "far_padding_key_seen",
              .kind = kKind,
              .sentence = "beyond 65,536 keys the first one of the padding is seen"});

template <class S>
struct Key4095 : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    return k.position != 4095 && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(Key4095,
             {.id = "key_4095_skipped", .kind = kKind, .sentence = "no row sees key 4095"});

template <class S>
struct KeysOver1024 : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    return k.position < 1024 && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(KeysOver1024, {.id = "keys_from_1024_lost",
                            .kind = kKind,
                            .sentence = "keys from 1024 on are not visited"});

template <class S>
struct TileBoundOfFirstRow : Stepwise<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    Span span = Stepwise<S>::tile_keys(first, last);
    if (this->problem.base == ATTEST_BASE_CAUSAL)
      span.end = std::min(span.end, std::max<std::int64_t>(0, (first.position / 16 + 1) * 16));
    return span;
  }
};
ATTEST_PLANT(TileBoundOfFirstRow,
             {.id = "tile_bound_of_first_row",
              .kind = kKind,
              .sentence = "a causal tile ends at the block that its first row needs"});

template <class S>
struct TileStartOfLastRow : Stepwise<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    Span span = Stepwise<S>::tile_keys(first, last);
    const std::int64_t left = this->problem.window_left;
    if (this->problem.global_tokens == 0 && left >= 0 && left < last.position)
      span.begin = last.position - left;
    return span;
  }
};
ATTEST_PLANT(TileStartOfLastRow,
             {.id = "tile_start_of_last_row",
              .kind = kKind,
              .sentence = "a tile under a window begins where its last row begins"});

template <class S>
struct TileBoundFromOtherMask : Stepwise<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    Span span = Stepwise<S>::tile_keys(first, last);
    if (this->problem.base == ATTEST_BASE_PREFIX)
      span.end = std::min(span.end, std::max<std::int64_t>(0, last.position + 1));
    return span;
  }
};
ATTEST_PLANT(TileBoundFromOtherMask,
             {.id = "tile_bound_from_other_mask",
              .kind = kKind,
              .sentence = "under base=prefix tiles end where base=causal would end",
              .reference = "sgl-project/sglang#39593"});

template <class S>
struct TileSkipsGlobals : Stepwise<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    Span span = Stepwise<S>::tile_keys(first, last);
    const std::int64_t left = this->problem.window_left;
    if (left >= 0 && left < first.position && first.position >= this->problem.global_tokens)
      span.begin = std::max(span.begin, (first.position - left) / 16 * 16);
    return span;
  }
};
ATTEST_PLANT(TileSkipsGlobals,
             {.id = "tile_skips_global_keys",
              .kind = kKind,
              .sentence = "a tile begins at the window of its first row, past the global keys"});

template <class S>
struct TileSkippedByMask : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    // A block is skipped where the first row of the tile sees none of it.
    Query first = row.query;
    const std::int64_t in_tile = (first.row - first.sequence->q0) % kQueryTile;
    first.row -= in_tile;
    first.position -= in_tile;
    bool any = false;
    for (const Key& k : block.keys) any = any || this->mask_allows(first, k);
    if (any) Stepwise<S>::absorb(row, block);
  }
};
ATTEST_PLANT(
    TileSkippedByMask,
    {.id = "tile_skipped_by_mask_of_first_row",
     .kind = kKind,
     .sentence = "blocks that the mask hides from a tile's first row are skipped for all"});

template <class S>
struct SecondTileOffset : Stepwise<S> {
  Query query(const Sequence& at, std::int64_t h, std::int64_t row) const override {
    Query q = Stepwise<S>::query(at, h, row);
    if (row - at.q0 >= kQueryTile) ++q.position;
    return q;
  }
};
ATTEST_PLANT(SecondTileOffset,
             {.id = "second_tile_offset",
              .kind = kKind,
              .sentence = "query positions from the second tile on are one too large"});

template <class S>
struct OddQueryPairs : Stepwise<S> {
  Query query(const Sequence& at, std::int64_t h, std::int64_t row) const override {
    Query q = Stepwise<S>::query(at, h, row);
    if (at.queries() > 1 && at.queries() % 2 == 1 && row == at.q1 - 1) --q.position;
    return q;
  }
};
ATTEST_PLANT(OddQueryPairs,
             {.id = "odd_q_pairs",
              .kind = kKind,
              .sentence = "rows go in pairs; a last one alone has its neighbour's position"});

template <class S>
struct FirstChannelOfTile : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    Partial<C> wrong = answer;
    const std::int64_t row = q.row - q.sequence->q0;
    if (row > 0 && row % kQueryTile == 0 && !wrong.o.empty()) wrong.o[0] *= C{1.03125};
    Stepwise<S>::write(q, wrong, empty);
  }
};
ATTEST_PLANT(FirstChannelOfTile, {.id = "first_channel_of_second_tile",
                                  .kind = kKind,
                                  .sentence = "o[0] of row 64, 128, ... is 3% too large"});

}  // namespace
}  // namespace attest::faulty
