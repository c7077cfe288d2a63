// SPDX-License-Identifier: Apache-2.0
// Honest kernels that serve backward.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest backward";

ATTEST_HONEST(StepwiseBackward, {.id = "backward",
                                 .kind = kKind,
                                 .sentence = "the stepwise kernel with its backward pass",
                                 .base = "backward",
                                 .declares = kBackward});

/// delta from the weights, as kernels have it that keep P for the backward pass.
template <class S>
struct BackwardDeltaFromP : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C delta(const GradientRow<C>& row) const override {
    const C sink = this->sink(row.query.h);
    GradientRow<C> scout = row;
    scout.empty = false;  // so that the pairs below do not ask for delta again
    C mass = sink == this->kNone ? C{0} : this->weight_again(row, sink), sum = 0;
    const Span keys = this->backward_keys(row.query, row.query);
    Block<C> block;
    for (block.first = keys.begin; block.first < keys.end; block.first += this->key_block()) {
      block.count = std::min(this->key_block(), keys.end - block.first);
      this->load_block(*row.query.sequence, row.query.h, block);
      for (const Pair<C>& pair : this->pairs(scout, block)) {
        mass += pair.p;
        sum += pair.p * pair.d_p;
      }
    }
    return sum / mass;
  }
};
ATTEST_HONEST(BackwardDeltaFromP, {.id = "backward_delta_from_p",
                                   .kind = kKind,
                                   .sentence = "delta is the sum of P dP, o is not read",
                                   .base = "backward_delta_from_p",
                                   .declares = kBackward});

template <class S>
struct BackwardRowsReversed : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  using typename StepwiseBackward<S>::Visit;
  using typename StepwiseBackward<S>::EndOfRow;
  void visit_head(const Sequence& at, std::int64_t h, const Visit& visit,
                  const EndOfRow& end_of_row) const override {
    for (std::int64_t row = at.q1 - 1; row >= at.q0; --row)
      this->visit_tile(at, h, row, 1, visit, end_of_row);
  }
};
ATTEST_HONEST(BackwardRowsReversed, {.id = "backward_rows_reversed",
                                     .kind = kKind,
                                     .sentence = "the last query row is added first, one at a time",
                                     .base = "backward_rows_reversed",
                                     .declares = kBackward});

/// The scale times every dS in place of the sums.
template <class S>
struct BackwardScaledDS : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C round_d_s(C d_s) const override {
    return this->stored(d_s * static_cast<C>(this->problem.scale));
  }
  C d_q_factor() const override { return 1; }
  C d_k_factor() const override { return 1; }
};
ATTEST_HONEST(BackwardScaledDS, {.id = "backward_scaled_ds",
                                 .kind = kKind,
                                 .sentence = "dS is scaled before its products with q and k",
                                 .base = "backward_scaled_ds",
                                 .declares = kBackward});

template <class S>
struct BackwardBlock16 : StepwiseBackward<S> {
  std::int64_t key_block() const override { return 16; }
};
ATTEST_HONEST(BackwardBlock16, {.id = "backward_block_16",
                                .kind = kKind,
                                .sentence = "blocks of 16 keys, forward and backward",
                                .base = "backward_block_16",
                                .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
