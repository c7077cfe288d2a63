// SPDX-License-Identifier: Apache-2.0
// Kernels that promise to need memory which grows with the lengths alone, and those of them that
// hold matrices.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kHonest = "honest memory";
constexpr const char* kKind = "memory growth";
constexpr const char* kLinear =
    "features=all precision=mma_f32acc deterministic batch_invariant thread_invariant "
    "masked_nan_safe memory=linear";
constexpr const char* kLinearBackward =
    "features=all backward=all precision=mma_f32acc deterministic batch_invariant "
    "thread_invariant masked_nan_safe memory=linear";

template <class S>
struct LinearMemory : Stepwise<S> {};
ATTEST_HONEST(LinearMemory, {.id = "linear_memory",
                             .kind = kHonest,
                             .sentence = "the stepwise kernel, which says that it holds no matrix",
                             .base = "linear_memory",
                             .declares = kLinear});

template <class S>
struct LinearMemoryBackward : StepwiseBackward<S> {};
ATTEST_HONEST(LinearMemoryBackward, {.id = "linear_memory_backward",
                                     .kind = kHonest,
                                     .sentence = "the backward kernel, which says the same",
                                     .base = "linear_memory_backward",
                                     .declares = kLinearBackward});

/// [queries, keys] of the head at work.
template <class C>
struct Matrix {
  std::vector<C> values;
  void make(const Sequence& at) {
    values.assign(static_cast<std::size_t>(at.queries() * at.keys()), C{0});
  }
  void set(const Sequence& at, std::int64_t row, std::int64_t key, C value) {
    const auto place = static_cast<std::size_t>((row - at.q0) * at.keys() + key);
    if (place < values.size()) values[place] = value;
  }
};

template <class S>
struct ScoresHeld : Stepwise<S> {
  using typename Stepwise<S>::C;
  inline static thread_local Matrix<C> scores;
  void attend(const Sequence& at, std::int64_t h) const override {
    scores.make(at);
    Stepwise<S>::attend(at, h);
    scores = {};
  }
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Stepwise<S>::score(q, k, query, key);
    scores.set(*q.sequence, q.row, std::max<std::int64_t>(k.row - q.sequence->k0, 0), z);
    return z;
  }
};
ATTEST_PLANT(ScoresHeld, {.id = "scores_held",
                          .kind = kKind,
                          .sentence = "the scores of a head are all held, one row after the other",
                          .base = "linear_memory",
                          .declares = kLinear});

template <class S>
struct ScoresInWorkspace : Stepwise<S> {
  static std::uint64_t workspace_bytes(const attest_attention& p) {
    return static_cast<std::uint64_t>(p.q->shape[2]) * static_cast<std::uint64_t>(p.k->shape[2]) *
           sizeof(Compute<S>);
  }
};
ATTEST_PLANT(ScoresInWorkspace,
             {.id = "scores_in_workspace",
              .kind = kKind,
              .sentence = "the plan asks for a workspace with room for the scores of a head",
              .base = "linear_memory",
              .declares = kLinear});

template <class S>
struct WeightsHeldInBackward : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  inline static thread_local Matrix<C> weights;
  void differentiate(const Sequence& at, std::int64_t g, HeadGradients& heads) const override {
    weights.make(at);
    StepwiseBackward<S>::differentiate(at, g, heads);
    weights = {};
  }
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (const Pair<C>& pair : seen)
      weights.set(*row.query.sequence, row.query.row, block.first + pair.n, pair.p);
    return seen;
  }
};
ATTEST_PLANT(WeightsHeldInBackward, {.id = "weights_held_in_backward",
                                     .kind = kKind,
                                     .sentence = "backward holds the matrix of P of a head",
                                     .base = "linear_memory_backward",
                                     .declares = kLinearBackward});

/// As kernels have it that work on key blocks side by side and still want the same bits again.
template <class S>
struct DqPerKeyBlock : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  inline static thread_local std::vector<C> parts;  ///< [blocks, queries, D]
  std::size_t part(const GradientRow<C>& row, std::int64_t block) const {
    const Sequence& at = *row.query.sequence;
    return static_cast<std::size_t>((block * at.queries() + row.query.row - at.q0) *
                                    this->sizes.dim);
  }
  std::int64_t blocks(const Sequence& at) const { return at.keys() / this->key_block() + 1; }
  void differentiate_head(const Sequence& at, std::int64_t h, KeyGradients<C>& keys,
                          HeadGradients& heads) const override {
    parts.assign(static_cast<std::size_t>(blocks(at) * at.queries() * this->sizes.dim), C{0});
    StepwiseBackward<S>::differentiate_head(at, h, keys, heads);
    parts = {};
  }
  void add_d_q(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const override {
    row.d_q.swap(scratch);
    row.d_q.assign(scratch.size(), C{0});
    StepwiseBackward<S>::add_d_q(row, pairs, block);
    const std::size_t begin = part(row, block.first / this->key_block());
    for (std::size_t c = 0; c < row.d_q.size(); ++c) parts[begin + c] += row.d_q[c];
    row.d_q.swap(scratch);
  }
  void finish_d_q(GradientRow<C>& row) const override {
    for (std::int64_t block = 0; block < blocks(*row.query.sequence); ++block)
      for (std::size_t c = 0; c < row.d_q.size(); ++c) row.d_q[c] += parts[part(row, block) + c];
    StepwiseBackward<S>::finish_d_q(row);
  }
  inline static thread_local std::vector<C> scratch;
};
ATTEST_PLANT(DqPerKeyBlock, {.id = "dq_per_key_block",
                             .kind = kKind,
                             .sentence = "dQ is held once for every block of 64 keys",
                             .base = "linear_memory_backward",
                             .declares = kLinearBackward});

}  // namespace
}  // namespace attest::faulty
