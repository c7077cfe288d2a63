// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in its sums: over heads, rows, tiles and the batch, in which
// precision, from what they start.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kHeads = "backward heads";
constexpr const char* kTiles = "backward tiles";
constexpr const char* kNumbers = "backward numbers";
constexpr const char* kState = "backward state";

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

/// x cut to the upper bits of its type.
template <class S, class C>
C truncated(C x) {
  C y = widen(narrow<S>(x));
  if (std::fabs(y) > std::fabs(x)) {
    S bits = narrow<S>(x);
    --bits.bits;  // one step towards 0, of either sign
    y = widen(bits);
  }
  return y;
}

template <class S>
struct DsTruncated : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C round_d_s(C d_s) const override {
    if constexpr (std::is_same_v<S, F16> || std::is_same_v<S, Bf16>)
      return truncated<S>(d_s);
    else
      return d_s;
  }
};
ATTEST_PLANT(DsTruncated, {.id = "ds_truncated",
                           .kind = kNumbers,
                           .sentence = "dS is cut to 16 bits, not rounded: gradients shrink",
                           .dtypes = kNarrowTypes,
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DpInBf16 : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_weight(const GradientRow<C>& row, C kept, const C* value) const override {
    return rounded<Bf16>(static_cast<float>(StepwiseBackward<S>::d_weight(row, kept, value)));
  }
};
ATTEST_PLANT(DpInBf16, {.id = "dp_in_bf16",
                        .kind = kNumbers,
                        .sentence = "dP is handed over in bf16, whatever the type",
                        .dtypes = "f64,f32,f16",
                        .base = "backward",
                        .declares = kBackward});

template <class S>
struct DkAccumulatedLow : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
               KeyGradients<C>& keys) const override {
    StepwiseBackward<S>::add_d_k(row, pairs, block, keys);
    for (const Pair<C>& pair : pairs) {
      C* const sum = keys.d_k.data() + (block.first + pair.n) * this->sizes.dim;
      for (std::int64_t c = 0; c < this->sizes.dim; ++c) sum[c] = this->stored(sum[c]);
    }
  }
};
ATTEST_PLANT(DkAccumulatedLow, {.id = "dk_accumulated_low",
                                .kind = kNumbers,
                                .sentence = "dK is added up in 16 bits, as atomics on dK itself do",
                                .dtypes = kNarrowTypes,
                                .base = "backward",
                                .declares = kBackward});

template <class S>
struct DqAccumulatedLow : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return 16; }
  void add_d_q(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const override {
    StepwiseBackward<S>::add_d_q(row, pairs, block);
    for (C& x : row.d_q) x = this->stored(x);
  }
};
ATTEST_PLANT(DqAccumulatedLow, {.id = "dq_accumulated_low",
                                .kind = kNumbers,
                                .sentence = "dQ is stored in 16 bits after each block of 16 keys",
                                .dtypes = kNarrowTypes,
                                .base = "backward_block_16",
                                .declares = kBackward});

template <class S>
struct BackwardStatsInF32 : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C delta(const GradientRow<C>& row) const override {
    return static_cast<float>(StepwiseBackward<S>::delta(row));
  }
  C lse(const Query& q) const override { return static_cast<float>(StepwiseBackward<S>::lse(q)); }
};
ATTEST_PLANT(BackwardStatsInF32, {.id = "backward_stats_in_f32_for_f64",
                                  .kind = kNumbers,
                                  .sentence = "lse and delta are kept in f32, also for f64",
                                  .dtypes = "f64",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct DsClipped : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C round_d_s(C d_s) const override {
    return StepwiseBackward<S>::round_d_s(std::clamp(d_s, C{-1}, C{1}));
  }
};
ATTEST_PLANT(DsClipped, {.id = "ds_clipped",
                         .kind = kNumbers,
                         .sentence = "dS is clipped to 1 against overflow: a hidden gradient clip",
                         .base = "backward",
                         .declares = kBackward});

template <class S>
struct WorkspaceNotCleared : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  static std::uint64_t workspace_bytes(const attest_attention& problem) {
    return static_cast<std::uint64_t>(problem.q->shape[3]) * sizeof(C);
  }
  GradientRow<C> start_row(const Query& q) const override {
    GradientRow<C> row = StepwiseBackward<S>::start_row(q);
    const auto* const left = static_cast<const C*>(this->context.workspace);
    if (left) std::copy_n(left, row.d_q.size(), row.d_q.begin());
    return row;
  }
};
ATTEST_PLANT(WorkspaceNotCleared,
             {.id = "dq_accumulator_not_cleared",
              .kind = kState,
              .sentence = "dQ is added to the workspace, which nobody has set to 0",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DkOfCallBefore : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const override {
    if (at.index == 0 && g == 0) {  // one item of the call, so that threads do not meet here
      if (left.size() == keys.d_k.size())
        for (std::size_t x = 0; x < left.size(); ++x) keys.d_k[x] += left[x];
      left = keys.d_k;
    }
    StepwiseBackward<S>::finish_keys(at, g, keys);
  }
  static inline std::vector<C> left;
};
ATTEST_PLANT(DkOfCallBefore,
             {.id = "dk_adds_to_call_before",
              .kind = kState,
              .sentence = "the accumulator of dK is cleared where its size changes, and only there",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DkRace : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  // Threads share one accumulator: a head may be finished from what another thread has left there.
  void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const override {
    if (this->context.num_threads > 1) {
      const std::size_t n = std::min<std::size_t>(keys.d_k.size(), kShared);
      for (std::size_t x = 0; x < n; ++x) shared[x].store(keys.d_k[x], std::memory_order_relaxed);
      std::this_thread::yield();
      for (std::size_t x = 0; x < n; ++x) keys.d_k[x] = shared[x].load(std::memory_order_relaxed);
    }
    StepwiseBackward<S>::finish_keys(at, g, keys);
  }
  static constexpr std::size_t kShared = 256;
  static inline std::atomic<C> shared[kShared];
};
ATTEST_PLANT(DkRace, {.id = "dk_race_between_threads",
                      .kind = kState,
                      .sentence = "with several threads, all share one accumulator of dK",
                      .base = "backward",
                      .declares = kBackward});

template <class S>
struct DqOrderVaries : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void run_backward() override {
    backwards = ++calls % 2 == 0;
    StepwiseBackward<S>::run_backward();
  }
  void add_d_q(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const override {
    Pairs<C> order = pairs;
    if (backwards) std::reverse(order.begin(), order.end());
    StepwiseBackward<S>::add_d_q(row, order, block);
  }
  static inline int calls = 0;
  bool backwards = false;
};
ATTEST_PLANT(DqOrderVaries,
             {.id = "nondeterministic_dq",
              .kind = kState,
              .sentence = "dQ is added in another order at every second call, as atomics do",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DvByThreads : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  using typename StepwiseBackward<S>::Visit;
  using typename StepwiseBackward<S>::EndOfRow;
  // Each of several threads takes the rows from its own end.
  void visit_head(const Sequence& at, std::int64_t h, const Visit& visit,
                  const EndOfRow& end_of_row) const override {
    if (this->context.num_threads < 2)
      return StepwiseBackward<S>::visit_head(at, h, visit, end_of_row);
    for (std::int64_t row = at.q1 - 1; row >= at.q0; --row)
      this->visit_tile(at, h, row, 1, visit, end_of_row);
  }
};
ATTEST_PLANT(DvByThreads,
             {.id = "dk_order_by_threads",
              .kind = kState,
              .sentence = "with several threads rows are added in another order: other bits",
              .base = "backward",
              .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
