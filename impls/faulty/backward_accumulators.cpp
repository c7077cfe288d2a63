// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in what sums are kept in: their precision, what they start from, who
// else adds to them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kNumbers = "backward numbers";
constexpr const char* kState = "backward state";

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
