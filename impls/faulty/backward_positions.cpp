// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in where queries and keys stand: RoPE, ALiBi, alignment.
#include <cstdlib>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kPosition = "backward positions";

template <class S>
struct DkTurnedForward : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_k(const Key& k, C* d_k) const override { this->rotate(d_k, k.position); }
};
ATTEST_PLANT(DkTurnedForward, {.id = "dk_turned_forward",
                               .kind = kPosition,
                               .sentence = "dK is rotated by +theta, with forward's own routine",
                               .base = "backward",
                               .declares = kBackward});

template <class S>
struct DqNotTurned : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_q(const Query&, C*) const override {}
};
ATTEST_PLANT(DqNotTurned, {.id = "dq_not_turned_back",
                           .kind = kPosition,
                           .sentence = "dQ is that of the rotated q",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DkTurnedByRow : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_k(const Key& k, C* d_k) const override { this->turn_back(d_k, k.row); }
};
ATTEST_PLANT(DkTurnedByRow,
             {.id = "dk_turned_by_row",
              .kind = kPosition,
              .sentence = "dK is turned by its row in the tensor: pads and segments count in",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqTurnedWithoutOffset : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_d_q(const Query& q, C* d_q) const override {
    this->turn_back(d_q, q.position - q.sequence->offset);
  }
};
ATTEST_PLANT(DqTurnedWithoutOffset,
             {.id = "dq_turned_without_offset",
              .kind = kPosition,
              .sentence = "dQ is turned back from its place among queries, not among keys",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct TurnedInHalves : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void turn_back(C* row, std::int64_t position) const override {
    const std::int64_t half = this->problem.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      const C x = row[t], y = row[t + half];
      row[t] = x * cosine + y * sine;
      row[t + half] = y * cosine - x * sine;
    }
  }
};
ATTEST_PLANT(TurnedInHalves,
             {.id = "rope_pairs_half_in_backward",
              .kind = kPosition,
              .sentence = "backward pairs channels (t, t + R/2), interleaved or not",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeOfDistance : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    if (this->problem.alibi != ATTEST_ALIBI_SIGNED)
      return StepwiseBackward<S>::alibi_distance(q, k);
    return -static_cast<C>(std::abs(k.position - q.position));
  }
};
ATTEST_PLANT(SlopeOfDistance,
             {.id = "d_slope_of_absolute_distance",
              .kind = kPosition,
              .sentence = "dSlope of signed ALiBi sums over -|distance|: right under causal alone",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeWithoutOffset : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    Query unaligned = q;
    unaligned.position -= q.sequence->offset;
    return StepwiseBackward<S>::alibi_distance(unaligned, k);
  }
};
ATTEST_PLANT(SlopeWithoutOffset,
             {.id = "d_slope_ignores_offset",
              .kind = kPosition,
              .sentence = "dSlope takes distances from query rows, not positions",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeInsideCap : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_slope(GradientRow<C>& row, const Pairs<C>& pairs,
                   const Block<C>& block) const override {
    Pairs<C> outside = pairs;
    for (Pair<C>& pair : outside) pair.d_a = pair.d_z;
    StepwiseBackward<S>::add_d_slope(row, outside, block);
  }
};
ATTEST_PLANT(SlopeInsideCap,
             {.id = "d_slope_misses_softcap",
              .kind = kPosition,
              .sentence = "dSlope of ALiBi inside the softcap is taken as if it stood outside",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SlopeSigned : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C alibi_distance(const Query& q, const Key& k) const override {
    const C distance = StepwiseBackward<S>::alibi_distance(q, k);
    return this->problem.alibi == ATTEST_ALIBI_ABSOLUTE ? -distance : distance;
  }
};
ATTEST_PLANT(SlopeSigned, {.id = "d_slope_sign_flipped",
                           .kind = kPosition,
                           .sentence = "dSlope forgets that ALiBi subtracts the distance",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct QOffsetIgnored : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.align == ATTEST_ALIGN_Q_OFFSET) at.offset = at.keys() - at.queries();
    return at;
  }
};
ATTEST_PLANT(QOffsetIgnored,
             {.id = "q_offset_ignored_in_backward",
              .kind = kPosition,
              .sentence = "backward places queries bottom right, whatever offset forward was given",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct TopLeftInBackward : StepwiseBackward<S> {
  Sequence backward_sequence(std::int64_t n) const override {
    Sequence at = this->sequence(n);
    if (this->problem.align == ATTEST_ALIGN_BOTTOM_RIGHT) at.offset = 0;
    return at;
  }
};
ATTEST_PLANT(TopLeftInBackward, {.id = "top_left_in_backward",
                                 .kind = kPosition,
                                 .sentence = "forward aligns bottom right, backward top left",
                                 .base = "backward",
                                 .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
