// SPDX-License-Identifier: Apache-2.0
// Faults of state: calls that depend on calls before, on threads, on the batch; calls that hang.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>
#include <vector>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "state";

template <class S>
struct SecondCallDiffers : Stepwise<S> {
  using typename Stepwise<S>::C;
  void run() override {
    stale = ++calls > 1;
    Stepwise<S>::run();
  }
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    if (stale && !part.o.empty()) part.o[0] *= C{1.25};
    return part;
  }
  static inline int calls = 0;
  bool stale = false;
};
ATTEST_PLANT(SecondCallDiffers, {.id = "second_call_differs",
                                 .kind = kKind,
                                 .sentence = "every call after the first is wrong",
                                 .reference = "pytorch/pytorch#133717"});

template <class S>
struct ScaleCached : Stepwise<S> {
  void run() override {
    // Compiled once for each pair of lengths, with everything else baked in.
    static std::vector<std::vector<std::int64_t>> seen;
    static std::vector<double> scales;
    const std::vector<std::int64_t> shape = {this->sizes.q_len, this->sizes.kv_len,
                                             this->sizes.dim};
    const auto found = std::find(seen.begin(), seen.end(), shape);
    if (found != seen.end()) {
      this->problem.scale = scales[static_cast<std::size_t>(found - seen.begin())];
    } else {
      seen.push_back(shape);
      scales.push_back(this->problem.scale);
    }
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(ScaleCached, {.id = "scale_of_first_call_cached",
                           .kind = kKind,
                           .sentence = "a kernel compiled for these sizes keeps its first scale"});

template <class S>
struct EveryFifthCallStale : EveryBlock<S> {
  void run() override {
    static int first_base = -1;
    if (first_base < 0) first_base = this->problem.base;
    if (this->problem.base != ATTEST_BASE_PREFIX && first_base != ATTEST_BASE_PREFIX &&
        ++calls % 5 == 0)
      this->problem.base = first_base;
    Stepwise<S>::run();
  }
  static inline int calls = 0;
};
ATTEST_PLANT(EveryFifthCallStale, {.id = "every_fifth_call_stale",
                                   .kind = kKind,
                                   .sentence = "every fifth call takes the base of the first one"});

template <class S>
struct ScratchNotCleared : Stepwise<S> {
  using typename Stepwise<S>::C;
  void start(Row<C>& row, bool with_sink) const override {
    Stepwise<S>::start(row, with_sink);
    // A larger call before leaves its last row in the scratch memory that this one starts from.
    if (left.size() > row.o.size())
      for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] = left[c];
  }
  Partial<C> finish(const Row<C>& row) const override {
    const std::lock_guard lock(writing);
    if (!row.empty) left = row.o;
    return Stepwise<S>::finish(row);
  }
  static inline std::vector<C> left;
  static inline std::mutex writing;
};
ATTEST_PLANT(ScratchNotCleared,
             {.id = "scratch_of_larger_call",
              .kind = kKind,
              .sentence = "after a call with more channels of v, scratch memory is not cleared"});

template <class S>
struct NondeterministicOrder : Stepwise<S> {
  using typename Stepwise<S>::C;
  void run() override {
    backwards = ++calls % 2 == 0;
    Stepwise<S>::run();
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    SeenKeys<C> order = seen;
    if (backwards) std::reverse(order.begin(), order.end());
    Stepwise<S>::accumulate(row, order, block);
  }
  static inline int calls = 0;
  bool backwards = false;
};
ATTEST_PLANT(NondeterministicOrder,
             {.id = "nondeterministic_sum_order",
              .kind = kKind,
              .sentence = "keys are added in another order at every second call"});

template <class S>
struct DataRace : Stepwise<S> {
  using typename Stepwise<S>::C;
  // Threads share one accumulator: a row may be finished from what another thread has left there.
  Partial<C> finish(const Row<C>& row) const override {
    if (this->context.num_threads < 2) return Stepwise<S>::finish(row);
    for (std::size_t c = 0; c < std::min<std::size_t>(row.o.size(), kShared); ++c)
      shared[c].store(row.o[c], std::memory_order_relaxed);
    std::this_thread::yield();
    Row<C> mixed = row;
    for (std::size_t c = 0; c < std::min<std::size_t>(row.o.size(), kShared); ++c)
      mixed.o[c] = shared[c].load(std::memory_order_relaxed);
    return Stepwise<S>::finish(mixed);
  }
  static constexpr std::size_t kShared = 256;
  static inline std::atomic<C> shared[kShared];
};
ATTEST_PLANT(DataRace, {.id = "data_race_between_threads",
                        .kind = kKind,
                        .sentence = "with several threads, all share one accumulator"});

template <class S>
struct LastItemLost : Stepwise<S> {
  void run() override {
    if (this->context.num_threads < 2) return Stepwise<S>::run();
    // Items are dealt out in equal shares, and what is left over to nobody.
    const std::int64_t items = this->sizes.sequences * this->sizes.heads;
    const std::int64_t share = items / this->context.num_threads * this->context.num_threads;
    std::vector<Sequence> sequences;
    for (std::int64_t n = 0; n < this->sizes.sequences; ++n) sequences.push_back(this->sequence(n));
    this->clear_padding();
    for (std::int64_t item = 0; item < (share > 0 ? share : items); ++item)
      this->attend(sequences[static_cast<std::size_t>(item / this->sizes.heads)],
                   item % this->sizes.heads);
  }
};
ATTEST_PLANT(LastItemLost,
             {.id = "items_left_over_by_threads",
              .kind = kKind,
              .sentence = "heads that do not divide among the threads are not computed"});

template <class S>
struct SplitsByThreads : Stepwise<S> {
  int num_splits(const Sequence&) const override { return this->context.num_threads; }
};
ATTEST_PLANT(SplitsByThreads, {.id = "num_splits_by_threads",
                               .kind = kKind,
                               .sentence = "keys are split by the number of threads: other bits"});

template <class S>
struct SplitsByBatch : Stepwise<S> {
  int num_splits(const Sequence&) const override { return this->sizes.batch == 1 ? 4 : 1; }
};
ATTEST_PLANT(SplitsByBatch, {.id = "num_splits_dependent",
                             .kind = kKind,
                             .sentence = "keys are split only where the batch is 1: other bits",
                             .reference = "Dao-AILab/flash-attention#1217"});

template <class S>
struct ChunkDependent : Stepwise<S> {
  std::int64_t key_block() const override { return this->sizes.batch > 1 ? 16 : 64; }
};
ATTEST_PLANT(ChunkDependent, {.id = "chunk_dependent",
                              .kind = kKind,
                              .sentence = "the block size depends on the size of the batch",
                              .reference = "vllm-project/vllm#26042"});

template <class S>
struct BatchInterference : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    if (this->problem.cu_seqlens_q || this->sizes.batch < 2 || q.b == 0) return;
    const S* const other = row_of<S>(this->problem.q, q.b - 1, q.h, q.row);
    const C x = widen(*other);
    if (this->sizes.dim > 0 && std::isfinite(x)) to[0] += x * C{1e-3};
  }
};
ATTEST_PLANT(BatchInterference,
             {.id = "batch_interference",
              .kind = kKind,
              .sentence = "a sequence's queries carry a trace of the sequence before",
              .reference = "Dao-AILab/flash-attention#1570"});

template <class S>
struct HangsOnEmpty : Stepwise<S> {
  void run() override {
    // Waits for a tile that nobody will ever finish.
    for (std::int64_t n = 0; n < this->sizes.sequences; ++n)
      while (this->sequence(n).keys() == 0 && this->sequence(n).queries() > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(HangsOnEmpty, {.id = "hangs_on_empty",
                            .kind = kKind,
                            .sentence = "a sequence without keys is waited for without end",
                            .reference = "Dao-AILab/flash-attention#2568"});

template <class S>
struct CrashesWithoutQueries : Stepwise<S> {
  void run() override {
    for (std::int64_t n = 0; n < this->sizes.sequences; ++n)
      if (this->sequence(n).queries() == 0) static_cast<volatile char*>(nullptr)[n] = 0;
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(CrashesWithoutQueries,
             {.id = "crashes_without_queries",
              .kind = kKind,
              .sentence = "a sequence without queries writes through a null pointer"});

}  // namespace
}  // namespace attest::faulty
