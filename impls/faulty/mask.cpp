// SPDX-License-Identifier: Apache-2.0
// Faults of the boolean mask and of the block mask.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "mask";

/// The mask is read, but at another place. place() edits where.
template <class S>
struct OtherEntry : Stepwise<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    if (!this->problem.mask) return true;
    Query at = q;
    Key key = k;
    place(at, key, TensorView<const std::uint8_t>(this->problem.mask));
    return Stepwise<S>::mask_allows(at, key);
  }
  virtual void place(Query& q, Key& k, const TensorView<const std::uint8_t>& mask) const = 0;
};

template <class S>
struct MaskPolarityInverted : Stepwise<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    return !this->problem.mask || !Stepwise<S>::mask_allows(q, k);
  }
};
ATTEST_PLANT(MaskPolarityInverted, {.id = "mask_polarity_inverted",
                                    .kind = kKind,
                                    .sentence = "1 in the mask hides instead of showing"});

template <class S>
struct MaskBroadcastWrongAxis : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>& mask) const override {
    if (mask.extent(0) > 1 && mask.extent(1) == 1) q.b = q.h % mask.extent(0);
  }
};
ATTEST_PLANT(MaskBroadcastWrongAxis,
             {.id = "mask_broadcast_wrong_axis",
              .kind = kKind,
              .sentence = "a mask of each sequence is read as a mask of each head",
              .reference = "pytorch/pytorch#184180"});

template <class S>
struct MaskBatchTakenForHead : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>& mask) const override {
    if (mask.extent(0) == mask.extent(1)) std::swap(q.b, q.h);
  }
};
ATTEST_PLANT(MaskBatchTakenForHead,
             {.id = "mask_batch_taken_for_head",
              .kind = kKind,
              .sentence = "with as many heads as sequences, the mask's two axes are exchanged"});

template <class S>
struct MaskOfHead0 : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>&) const override { q.h = 0; }
};
ATTEST_PLANT(MaskOfHead0, {.id = "mask_of_head_0",
                           .kind = kKind,
                           .sentence = "all heads take the mask of head 0"});

template <class S>
struct MaskOfKvHead : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>&) const override {
    q.h /= this->sizes.group;
  }
};
ATTEST_PLANT(MaskOfKvHead, {.id = "mask_of_kv_head",
                            .kind = kKind,
                            .sentence = "a mask of each query head is read by key/value head"});

template <class S>
struct MaskOfSequence0 : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>&) const override { q.b = 0; }
};
ATTEST_PLANT(MaskOfSequence0, {.id = "mask_of_sequence_0",
                               .kind = kKind,
                               .sentence = "all sequences take the mask of sequence 0"});

template <class S>
struct MaskOfRow0 : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>&) const override { q.row = 0; }
};
ATTEST_PLANT(MaskOfRow0,
             {.id = "mask_of_row_0",
              .kind = kKind,
              .sentence = "a mask is taken for a key padding mask: all read its row 0"});

template <class S>
struct MaskTransposed : OtherEntry<S> {
  void place(Query& q, Key& k, const TensorView<const std::uint8_t>& mask) const override {
    if (mask.extent(2) == mask.extent(3)) std::swap(q.row, k.row);
  }
};
ATTEST_PLANT(MaskTransposed, {.id = "mask_transposed",
                              .kind = kKind,
                              .sentence = "a square mask is read with rows and columns exchanged"});

template <class S>
struct MaskByPosition : OtherEntry<S> {
  void place(Query& q, Key& k, const TensorView<const std::uint8_t>&) const override {
    q.row -= q.sequence->q0;
    k.row = k.position;
  }
};
ATTEST_PLANT(MaskByPosition,
             {.id = "mask_by_position",
              .kind = kKind,
              .sentence = "the mask is indexed from the start of the sequence, not of the call"});

template <class S>
struct MaskTileRow : OtherEntry<S> {
  void place(Query& q, Key&, const TensorView<const std::uint8_t>&) const override {
    if (q.row - q.sequence->q0 >= kQueryTile) --q.row;
  }
};
ATTEST_PLANT(MaskTileRow,
             {.id = "mask_second_tile_one_row_early",
              .kind = kKind,
              .sentence = "from the second query tile on, a row reads the mask of the row before"});

template <class S>
struct MaskWords : OtherEntry<S> {
  void place(Query&, Key& k, const TensorView<const std::uint8_t>&) const override {
    if (k.row >= 64) k.row %= 64;
  }
};
ATTEST_PLANT(MaskWords, {.id = "mask_first_64_bits",
                         .kind = kKind,
                         .sentence = "mask bits are kept in one 64-bit word: key 64 is key 0"});

template <class S>
struct MaskDenseRows : Stepwise<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    if (!this->problem.mask) return true;
    const TensorView<const std::uint8_t> mask(this->problem.mask);
    if (mask.extent(2) == 1 || mask.stride(2) <= mask.extent(3) || mask.stride(3) != 1)
      return Stepwise<S>::mask_allows(q, k);
    const std::uint8_t* const rows = &mask.broadcast(q.b, q.h, std::int64_t{0}, std::int64_t{0});
    return rows[q.row * mask.extent(3) + (mask.extent(3) == 1 ? 0 : k.row)] != 0;
  }
};
ATTEST_PLANT(MaskDenseRows, {.id = "mask_row_stride_ignored",
                             .kind = kKind,
                             .sentence = "the rows of the mask are taken to lie without gaps"});

template <class S>
struct MaskForgottenWhenCausal : Stepwise<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    return this->problem.base == ATTEST_BASE_CAUSAL || Stepwise<S>::mask_allows(q, k);
  }
};
ATTEST_PLANT(MaskForgottenWhenCausal, {.id = "mask_forgotten_when_causal",
                                       .kind = kKind,
                                       .sentence = "base=causal makes the mask forgotten"});

template <class S>
struct MaskReplacesCausal : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    return this->problem.mask || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(MaskReplacesCausal, {.id = "mask_replaces_causal",
                                  .kind = kKind,
                                  .sentence = "with a mask the causal rule is not applied"});

template <class S>
struct MaskLastPartialBlock : Stepwise<S> {
  bool mask_allows(const Query& q, const Key& k) const override {
    const std::int64_t whole = q.sequence->keys() / 16 * 16;
    return (whole > 0 && k.position >= whole) || Stepwise<S>::mask_allows(q, k);
  }
};
ATTEST_PLANT(MaskLastPartialBlock, {.id = "mask_not_applied_in_tail",
                                    .kind = kKind,
                                    .sentence = "the keys after the last whole 16 are not masked"});

template <class S>
struct BoolMaskAsFloat : Stepwise<S> {
  using typename Stepwise<S>::C;
  bool mask_allows(const Query&, const Key&) const override { return true; }
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Stepwise<S>::score(q, k, query, key);
    return this->problem.mask && Stepwise<S>::mask_allows(q, k) ? z + 1 : z;
  }
};
ATTEST_PLANT(BoolMaskAsFloat, {.id = "bool_mask_as_float",
                               .kind = kKind,
                               .sentence = "a boolean mask is added to the scores as 0 and 1",
                               .reference = "pytorch/pytorch#107084"});

template <class S>
struct AdditiveMaskReadAsKeep : Stepwise<S> {
  using typename Stepwise<S>::C;
  bool visible(const Query& q, const Key& k) const override {
    return Stepwise<S>::visible(q, k) && (!this->problem.bias || Stepwise<S>::bias(q, k) != 0);
  }
  C bias(const Query&, const Key&) const override { return 0; }
};
ATTEST_PLANT(AdditiveMaskReadAsKeep,
             {.id = "additive_mask_read_as_keep",
              .kind = kKind,
              .sentence = "a bias is read as a boolean mask: 0 hides, anything else shows"});

template <class S>
struct BlocksSwapped : Stepwise<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    if (!this->problem.blocks) return true;
    const TensorView<const std::uint8_t> blocks(this->problem.blocks);
    return blocks.broadcast(q.b, q.h, std::min(q.row / this->problem.block_k, blocks.extent(2) - 1),
                            std::min(k.row / this->problem.block_q, blocks.extent(3) - 1)) != 0;
  }
};
ATTEST_PLANT(BlocksSwapped, {.id = "blocks_qk_swapped",
                             .kind = kKind,
                             .sentence = "block_q and block_k are exchanged"});

template <class S>
struct BlocksRounded : Stepwise<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    if (!this->problem.blocks) return true;
    const TensorView<const std::uint8_t> blocks(this->problem.blocks);
    const std::int64_t column = (k.row + this->problem.block_k / 2) / this->problem.block_k;
    return blocks.broadcast(q.b, q.h, q.row / this->problem.block_q,
                            std::min(column, blocks.extent(3) - 1)) != 0;
  }
};
ATTEST_PLANT(BlocksRounded, {.id = "blocks_rounded",
                             .kind = kKind,
                             .sentence = "a key's block is rounded to the nearest, not down"});

template <class S>
struct BlocksByPosition : Stepwise<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    Query at = q;
    at.row -= q.sequence->q0;
    return Stepwise<S>::blocks_allow(at, {k.position, k.position});
  }
};
ATTEST_PLANT(BlocksByPosition,
             {.id = "blocks_by_position",
              .kind = kKind,
              .sentence = "blocks are counted from the start of the sequence, not of the call"});

template <class S>
struct BlocksOfHead0 : Stepwise<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    Query at = q;
    at.h = 0;
    return Stepwise<S>::blocks_allow(at, k);
  }
};
ATTEST_PLANT(BlocksOfHead0, {.id = "blocks_of_head_0",
                             .kind = kKind,
                             .sentence = "all heads take the block mask of head 0"});

template <class S>
struct BlocksLastPartial : Stepwise<S> {
  bool blocks_allow(const Query& q, const Key& k) const override {
    const std::int64_t size = this->problem.blocks ? this->problem.block_k : 1;
    const bool cut = this->sizes.kv_len > size && k.row >= this->sizes.kv_len / size * size;
    return !cut && Stepwise<S>::blocks_allow(q, k);
  }
};
ATTEST_PLANT(BlocksLastPartial,
             {.id = "blocks_last_partial_dropped",
              .kind = kKind,
              .sentence = "a last block with fewer keys than block_k is never visited"});

}  // namespace
}  // namespace attest::faulty
