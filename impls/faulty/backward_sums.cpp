// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in its sums: over heads, rows, tiles and the batch.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kHeads = "backward heads";
constexpr const char* kTiles = "backward tiles";

template <class S>
struct GqaGradNotSummed : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void differentiate_head(const Sequence& at, std::int64_t h, KeyGradients<C>& keys,
                          HeadGradients& heads) const override {
    std::fill(keys.d_k.begin(), keys.d_k.end(), C{0});
    std::fill(keys.d_v.begin(), keys.d_v.end(), C{0});
    StepwiseBackward<S>::differentiate_head(at, h, keys, heads);
  }
};
ATTEST_PLANT(GqaGradNotSummed,
             {.id = "gqa_grad_not_summed",
              .kind = kHeads,
              .sentence = "each head of a group writes dK and dV, and the last one stays",
              .reference = "stanford-crfm/levanter#449",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct GqaGradMean : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const override {
    const auto heads = static_cast<C>(this->sizes.group);
    for (C& x : keys.d_k) x /= heads;
    for (C& x : keys.d_v) x /= heads;
    StepwiseBackward<S>::finish_keys(at, g, keys);
  }
};
ATTEST_PLANT(GqaGradMean, {.id = "gqa_grad_averaged",
                           .kind = kHeads,
                           .sentence = "dK and dV are the mean over the heads of the group",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct GqaModuloInBackward : StepwiseBackward<S> {
  void run_backward() override {
    in_backward = true;
    StepwiseBackward<S>::run_backward();
  }
  std::int64_t kv_head(std::int64_t h) const override {
    return in_backward ? h % this->sizes.kv_heads : Stepwise<S>::kv_head(h);
  }
  std::int64_t group_head(std::int64_t g, std::int64_t n) const override {
    return n * this->sizes.kv_heads + g;
  }
  bool in_backward = false;
};
ATTEST_PLANT(GqaModuloInBackward,
             {.id = "gqa_modulo_in_backward",
              .kind = kHeads,
              .sentence = "backward maps query head h to key/value head h mod Hkv",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct TailRowsRepeated : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  using typename StepwiseBackward<S>::Visit;
  using typename StepwiseBackward<S>::EndOfRow;
  void visit_tile(const Sequence& at, std::int64_t h, std::int64_t first, std::int64_t count,
                  const Visit& visit, const EndOfRow& end_of_row) const override {
    StepwiseBackward<S>::visit_tile(at, h, first, count, visit, end_of_row);
    for (std::int64_t lane = count; lane % 16 != 0; ++lane)
      StepwiseBackward<S>::visit_tile(at, h, first + count - 1, 1, visit, [](auto&) {});
  }
};
ATTEST_PLANT(
    TailRowsRepeated,
    {.id = "backward_tail_not_masked",
     .kind = kTiles,
     .sentence = "loads of the last tile stop at the last query, which then counts for all "
                 "lanes of 16",
     .reference = "Dao-AILab/flash-attention#1947",
     .base = "backward",
     .declares = kBackward});

template <class S>
struct TailKeysRead : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Span backward_keys(const Query& first, const Query& last) const override {
    Span span = StepwiseBackward<S>::backward_keys(first, last);
    const Sequence& at = *first.sequence;
    if (span.end == at.keys())
      span.end = std::min((at.keys() + 15) / 16 * 16, this->sizes.kv_len - at.k0);
    return span;
  }
  void add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    StepwiseBackward<S>::add_d_k(row, within(row, pairs, block), block, keys);
  }
  void add_d_v(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    StepwiseBackward<S>::add_d_v(row, within(row, pairs, block), block, keys);
  }
  static Pairs<C> within(const GradientRow<C>& row, Pairs<C> pairs, const Block<C>& block) {
    std::erase_if(pairs, [&](const Pair<C>& pair) {
      return block.first + pair.n >= row.query.sequence->keys();
    });
    return pairs;
  }
};
ATTEST_PLANT(TailKeysRead,
             {.id = "backward_key_tail_not_masked",
              .kind = kTiles,
              .sentence = "dQ takes whole groups of 16 keys, also where the sequence ends in one",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct LastTileLostInDk : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    const Sequence& at = *row.query.sequence;
    const std::int64_t whole = at.queries() / kQueryTile * kQueryTile;
    if (whole == 0 || row.query.row - at.q0 < whole)
      StepwiseBackward<S>::add_d_k(row, pairs, block, keys);
  }
};
ATTEST_PLANT(LastTileLostInDk,
             {.id = "last_q_block_skipped_in_dk",
              .kind = kTiles,
              .sentence = "the loop of dK over query tiles rounds their number down",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DkStartsTopLeft : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return 16; }
  void add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    const std::int64_t tile = (row.query.row - row.query.sequence->q0) / 16 * 16;
    if (this->problem.base != ATTEST_BASE_CAUSAL || tile >= block.first / 16 * 16)
      StepwiseBackward<S>::add_d_k(row, pairs, block, keys);
  }
};
ATTEST_PLANT(
    DkStartsTopLeft,
    {.id = "dk_causal_start_top_left",
     .kind = kTiles,
     .sentence = "under causal dK of a key block starts at the query tile of its own number",
     .base = "backward_block_16",
     .declares = kBackward});

template <class S>
struct LastKeyLostInDq : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_q(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const override {
    Pairs<C> most = pairs;
    if (block.count % 2 == 1 && most.back().n == block.count - 1) most.pop_back();
    StepwiseBackward<S>::add_d_q(row, most, block);
  }
};
ATTEST_PLANT(LastKeyLostInDq, {.id = "odd_key_lost_in_dq",
                               .kind = kTiles,
                               .sentence = "dQ takes keys two at a time and loses an odd last one",
                               .base = "backward",
                               .declares = kBackward});

template <class S>
struct BlockEdgeTwiceInDv : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_v(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    StepwiseBackward<S>::add_d_v(row, pairs, block, keys);
    if (row.query.row - row.query.sequence->q0 == kQueryTile)
      StepwiseBackward<S>::add_d_v(row, pairs, block, keys);
  }
};
ATTEST_PLANT(BlockEdgeTwiceInDv, {.id = "row_64_twice_in_dv",
                                  .kind = kTiles,
                                  .sentence = "tiles of dV overlap by one: row 64 counts twice",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct UnseenUnwritten : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void clear_gradients() const override {
    for (const DLTensor* gradient : {this->problem.d_q, this->problem.d_v})
      if (gradient) write_zeros<S>(gradient);
  }
};
ATTEST_PLANT(UnseenUnwritten,
             {.id = "dk_of_padding_unwritten",
              .kind = kTiles,
              .sentence = "dK of keys outside every sequence keeps what memory held",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct ZeroDvUnwritten : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void clear_gradients() const override {
    for (const DLTensor* gradient : {this->problem.d_q, this->problem.d_k})
      if (gradient) write_zeros<S>(gradient);
  }
  void write_d_v(const Sequence& at, std::int64_t g, const Key& k, const C* d_v) const override {
    // Blocks that no query tile meets have no kernel that would write them.
    if (std::any_of(d_v, d_v + this->sizes.v_dim, [](C x) { return x != 0; }))
      StepwiseBackward<S>::write_d_v(at, g, k, d_v);
  }
};
ATTEST_PLANT(ZeroDvUnwritten, {.id = "dv_of_unseen_keys_unwritten",
                               .kind = kTiles,
                               .sentence = "dV of keys that nobody sees keeps what memory held",
                               .base = "backward",
                               .declares = kBackward});

template <class S>
struct DBiasNotReduced : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_bias(C& sum, C d_z) const override { sum = d_z; }
};
ATTEST_PLANT(DBiasNotReduced,
             {.id = "dbias_not_reduced",
              .kind = kHeads,
              .sentence = "where bias broadcasts dBias is that of the last pair, not the sum",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DBiasBatchMean : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void write_d_bias(std::int64_t b, std::int64_t h, const std::vector<C>& sums) const override {
    std::vector<C> mean = sums;
    if (this->problem.bias->shape[0] == 1)
      for (C& x : mean) x /= static_cast<C>(this->sizes.batch);
    StepwiseBackward<S>::write_d_bias(b, h, mean);
  }
};
ATTEST_PLANT(DBiasBatchMean, {.id = "dbias_averaged_over_batch",
                              .kind = kHeads,
                              .sentence = "dBias of a shared bias is the mean over the batch",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct DBiasZero : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_bias(C&, C) const override {}
};
ATTEST_PLANT(DBiasZero, {.id = "dbias_silently_zero",
                         .kind = kHeads,
                         .sentence = "dBias is written as 0: bias is taken for a constant mask",
                         .base = "backward",
                         .declares = kBackward});

template <class S>
struct DSlopeLastBatch : StepwiseBackward<S> {
  void write_d_slopes(const HeadGradients& heads) const override {
    HeadGradients last = heads;
    const std::int64_t before = (this->sizes.sequences - 1) * this->sizes.heads;
    if (this->problem.d_alibi_slopes->ndim == 1 && before > 0)
      std::fill_n(last.d_slope.begin(), before, 0);
    StepwiseBackward<S>::write_d_slopes(last);
  }
};
ATTEST_PLANT(DSlopeLastBatch, {.id = "d_slope_not_summed_over_batch",
                               .kind = kHeads,
                               .sentence = "slopes shared by the batch get the last one's gradient",
                               .base = "backward",
                               .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
