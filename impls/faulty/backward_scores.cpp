// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in what a pair passes on: through the scale, the softcap, dropout.
#include <cmath>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kScores = "backward scores";
constexpr const char* kDropout = "backward dropout";

template <class S>
struct DkScaleMissing : StepwiseBackward<S> {
  typename Stepwise<S>::C d_k_factor() const override { return 1; }
};
ATTEST_PLANT(DkScaleMissing,
             {.id = "dk_scale_missing",
              .kind = kScores,
              .sentence = "dK is not scaled, as if the scale had been folded into q already",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqScaleMissing : StepwiseBackward<S> {
  typename Stepwise<S>::C d_q_factor() const override { return 1; }
};
ATTEST_PLANT(DqScaleMissing,
             {.id = "dq_scale_missing",
              .kind = kScores,
              .sentence = "dQ is not scaled, as if the scale had been folded into k already",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DqScaleDefault : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_q_factor() const override {
    return static_cast<C>(1 / std::sqrt(static_cast<double>(this->sizes.dim)));
  }
};
ATTEST_PLANT(DqScaleDefault, {.id = "user_scale_ignored_in_dq",
                              .kind = kScores,
                              .sentence = "dQ is scaled by 1/sqrt(D), whatever scale is given",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct SoftcapDerivativeMissing : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>&, const Key&, const C*, C d_z) const override {
    return d_z;
  }
};
ATTEST_PLANT(SoftcapDerivativeMissing, {.id = "softcap_derivative_missing",
                                        .kind = kScores,
                                        .sentence = "the softcap passes dS on as it is",
                                        .base = "backward",
                                        .declares = kBackward});

template <class S>
struct SoftcapTwice : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>& row, const Key& k, const C* key, C d_z) const override {
    C a = this->scaled(this->dot(row.q.data(), key, this->sizes.dim));
    if (this->problem.alibi && this->problem.alibi_inside_softcap) a += this->alibi(row.query, k);
    const C t = std::tanh(this->capped(a) / static_cast<C>(this->problem.softcap));
    return d_z * (1 - t * t);
  }
};
ATTEST_PLANT(SoftcapTwice,
             {.id = "softcap_derivative_of_capped",
              .kind = kScores,
              .sentence = "1 - tanh^2 is taken at the capped score, which the tile holds by then",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SoftcapWithoutAlibi : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C through_softcap(const GradientRow<C>& row, const Key&, const C* key, C d_z) const override {
    const C a = this->scaled(this->dot(row.q.data(), key, this->sizes.dim));
    const C t = std::tanh(a / static_cast<C>(this->problem.softcap));
    return d_z * (1 - t * t);
  }
};
ATTEST_PLANT(SoftcapWithoutAlibi,
             {.id = "softcap_derivative_without_alibi",
              .kind = kScores,
              .sentence = "the derivative of the softcap forgets the ALiBi term inside it",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct SoftcapOnBias : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) pair.d_z = pair.d_a;
    return seen;
  }
};
ATTEST_PLANT(SoftcapOnBias,
             {.id = "softcap_derivative_on_bias",
              .kind = kScores,
              .sentence = "dBias is written after the softcap's derivative, which bias never met",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DBiasScaled : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void add_d_bias(C& sum, C d_z) const override {
    sum += d_z * static_cast<C>(this->problem.scale);
  }
};
ATTEST_PLANT(DBiasScaled, {.id = "d_bias_scaled",
                           .kind = kScores,
                           .sentence = "dBias is scaled like dS, though bias is added after scale",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DropoutMaskDiffers : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C dropout_factor(const Query& q, const Key& k) const override {
    Query other = q;  // the random numbers of backward begin one row later
    if (q.row + 1 < q.sequence->q1) ++other.row;
    return StepwiseBackward<S>::dropout_factor(other, k);
  }
};
ATTEST_PLANT(DropoutMaskDiffers, {.id = "dropout_mask_differs",
                                  .kind = kDropout,
                                  .sentence = "backward drops other pairs than forward",
                                  .reference = "pytorch/pytorch#197563",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct DropoutIgnored : StepwiseBackward<S> {
  typename Stepwise<S>::C dropout_factor(const Query&, const Key&) const override { return 1; }
};
ATTEST_PLANT(DropoutIgnored, {.id = "dropout_ignored_in_backward",
                              .kind = kDropout,
                              .sentence = "backward drops nothing, as if it ran for inference",
                              .base = "backward",
                              .declares = kBackward});

template <class S>
struct DvUndropped : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) pair.weight = this->round_p(pair.p);
    return seen;
  }
};
ATTEST_PLANT(DvUndropped, {.id = "dv_from_undropped_p",
                           .kind = kDropout,
                           .sentence = "dV takes P, not what dropout left of it",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DpNotScaled : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_weight(const GradientRow<C>& row, C kept, const C* value) const override {
    return StepwiseBackward<S>::d_weight(row, kept == 0 ? C{0} : C{1}, value);
  }
};
ATTEST_PLANT(DpNotScaled, {.id = "dp_without_dropout_factor",
                           .kind = kDropout,
                           .sentence = "dP of kept pairs lacks 1/(1 - p)",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DzFromDroppedP : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const override {
    Pairs<C> seen = StepwiseBackward<S>::pairs(row, block);
    for (Pair<C>& pair : seen) {
      pair.d_z *= pair.kept;
      pair.d_a *= pair.kept;
      pair.d_s = this->round_d_s(pair.d_a);
    }
    return seen;
  }
};
ATTEST_PLANT(DzFromDroppedP,
             {.id = "ds_from_dropped_p",
              .kind = kDropout,
              .sentence = "one P serves dV and dS: that after dropout, so that delta is cut too",
              .base = "backward",
              .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
