// SPDX-License-Identifier: Apache-2.0
// Faults of scores: scale, softcap, bias.
#include <algorithm>
#include <cmath>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "scores";

/// Another scale. scale() says which.
template <class S>
struct OtherScale : Stepwise<S> {
  void run() override {
    this->problem.scale = scale();
    Stepwise<S>::run();
  }
  virtual double scale() const = 0;
  double root_scale() const { return 1 / std::sqrt(static_cast<double>(this->sizes.dim)); }
};

template <class S>
struct ScaleMissing : OtherScale<S> {
  double scale() const override { return 1; }
};
ATTEST_PLANT(ScaleMissing,
             {.id = "scale_missing", .kind = kKind, .sentence = "scores are not scaled"});

template <class S>
struct ScaleTwice : OtherScale<S> {
  double scale() const override { return this->problem.scale * this->problem.scale; }
};
ATTEST_PLANT(ScaleTwice,
             {.id = "scale_twice", .kind = kKind, .sentence = "scores are scaled twice"});

template <class S>
struct ScaleByModelDim : OtherScale<S> {
  double scale() const override {
    const std::int64_t width = this->sizes.dim * this->sizes.heads;
    return this->sizes.dim == 0 ? this->problem.scale : 1 / std::sqrt(static_cast<double>(width));
  }
};
ATTEST_PLANT(ScaleByModelDim,
             {.id = "scale_by_model_dim",
              .kind = kKind,
              .sentence = "the scale is 1/sqrt(heads * head_dim), not 1/sqrt(head_dim)"});

template <class S>
struct ScaleOneOverD : OtherScale<S> {
  double scale() const override {
    return this->problem.scale == this->root_scale() && this->sizes.dim > 0
               ? 1 / static_cast<double>(this->sizes.dim)
               : this->problem.scale;
  }
};
ATTEST_PLANT(ScaleOneOverD, {.id = "scale_one_over_dim",
                             .kind = kKind,
                             .sentence = "the default scale is 1/head_dim"});

template <class S>
struct UserScaleIgnored : OtherScale<S> {
  double scale() const override {
    return this->sizes.dim == 0 ? this->problem.scale : this->root_scale();
  }
};
ATTEST_PLANT(UserScaleIgnored, {.id = "user_scale_ignored",
                                .kind = kKind,
                                .sentence = "the scale is 1/sqrt(head_dim) whatever is given",
                                .reference = "pytorch/pytorch#174361"});

template <class S>
struct ScaleZeroIsDefault : OtherScale<S> {
  double scale() const override {
    return this->problem.scale == 0 && this->sizes.dim > 0 ? this->root_scale()
                                                           : this->problem.scale;
  }
};
ATTEST_PLANT(ScaleZeroIsDefault, {.id = "scale_zero_is_default",
                                  .kind = kKind,
                                  .sentence = "a scale of 0 is taken for none given"});

template <class S>
struct ScaleZeroSkipsProduct : Stepwise<S> {
  using typename Stepwise<S>::C;
  C scaled(C product) const override {
    return this->problem.scale == 0 ? C{0} : Stepwise<S>::scaled(product);
  }
};
ATTEST_PLANT(ScaleZeroSkipsProduct,
             {.id = "scale_zero_skips_product",
              .kind = kKind,
              .sentence = "with a scale of 0 q and k are not read, as BLAS does for alpha = 0: a "
                          "NaN or inf in them is lost",
              .reference = "reference BLAS, dgemm.f"});

template <class S>
struct ScaleSignLost : OtherScale<S> {
  double scale() const override { return std::fabs(this->problem.scale); }
};
ATTEST_PLANT(ScaleSignLost,
             {.id = "scale_sign_lost",
              .kind = kKind,
              .sentence = "a negative scale loses its sign (root of it on q and k)"});

template <class S>
struct NegativeScaleMax : Stepwise<S> {
  using typename Stepwise<S>::C;
  // The maximum of q.k times the scale is no maximum where the scale is negative.
  C next_max(C max, const SeenKeys<C>& seen) const override {
    if (this->problem.scale >= 0) return Stepwise<S>::next_max(max, seen);
    C least = seen.front().z;
    for (const Seen<C>& key : seen) least = std::min(least, key.z);
    return std::max(max, least);
  }
};
ATTEST_PLANT(NegativeScaleMax,
             {.id = "negative_scale_max",
              .kind = kKind,
              .sentence = "the maximum is taken before a negative scale: it is the minimum then",
              .dtypes = "f32,f16,bf16"});

template <class S>
struct ScaleInHalf : OtherScale<S> {
  double scale() const override { return round_to(DType::f16, this->problem.scale); }
};
ATTEST_PLANT(ScaleInHalf, {.id = "scale_rounded_to_f16",
                           .kind = kKind,
                           .sentence = "the scale is kept in 16 bits"});

template <class S>
struct LastHeadOtherwise : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    if (this->sizes.heads < 2 || q.h + 1 < this->sizes.heads) return;
    for (std::int64_t c = 0; c < this->sizes.dim; ++c) to[c] *= static_cast<C>(1.0625);
  }
};
ATTEST_PLANT(LastHeadOtherwise,
             {.id = "last_head_scaled_otherwise",
              .kind = kKind,
              .sentence = "the scores of the last of several heads are 6% larger"});

template <class S>
struct SoftcapIgnored : Stepwise<S> {
  using typename Stepwise<S>::C;
  C capped(C score) const override { return score; }
};
ATTEST_PLANT(SoftcapIgnored,
             {.id = "softcap_ignored", .kind = kKind, .sentence = "there is no softcap"});

template <class S>
struct SoftcapClamps : Stepwise<S> {
  using typename Stepwise<S>::C;
  C capped(C score) const override {
    const auto cap = static_cast<C>(this->problem.softcap);
    return std::clamp(score, -cap, cap);
  }
};
ATTEST_PLANT(SoftcapClamps, {.id = "softcap_clamps",
                             .kind = kKind,
                             .sentence = "scores are cut at the softcap, without tanh"});

template <class S>
struct SoftcapAfterMask : Stepwise<S> {
  using typename Stepwise<S>::C;
  C hidden_score(const Query& q, const Key& k) const override {
    return this->problem.softcap > 0 ? static_cast<C>(-this->problem.softcap)
                                     : Stepwise<S>::hidden_score(q, k);
  }
};
ATTEST_PLANT(SoftcapAfterMask, {.id = "softcap_after_mask",
                                .kind = kKind,
                                .sentence = "-inf passes through the softcap and becomes -softcap",
                                .reference = "onnx/onnx#7865"});

template <class S>
struct SoftcapNaiveTanh : Stepwise<S> {
  using typename Stepwise<S>::C;
  C capped(C score) const override {
    const auto cap = static_cast<C>(this->problem.softcap);
    const C e = std::exp(2 * score / cap);  // inf / inf beyond 44 caps
    return cap * ((e - 1) / (e + 1));
  }
};
ATTEST_PLANT(SoftcapNaiveTanh,
             {.id = "softcap_naive_tanh",
              .kind = kKind,
              .sentence = "tanh is (exp(2x) - 1) / (exp(2x) + 1), which overflows",
              .reference = "vllm-project/vllm#56578"});

template <class S>
struct SoftcapPolynomial : Stepwise<S> {
  using typename Stepwise<S>::C;
  C capped(C score) const override {
    const auto cap = static_cast<C>(this->problem.softcap);
    const C x = score / cap;
    return std::fabs(x) < C{0.3} ? cap * x * (1 - x * x / 3) : Stepwise<S>::capped(score);
  }
};
ATTEST_PLANT(SoftcapPolynomial, {.id = "softcap_short_series",
                                 .kind = kKind,
                                 .sentence = "tanh is x - x^3/3 for small scores"});

template <class S>
struct SoftcapAfterBias : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    if (!(this->problem.softcap > 0 && this->problem.bias))
      return Stepwise<S>::score(q, k, query, key);
    C z = this->scaled(this->dot(query, key, this->sizes.dim)) + this->bias(q, k);
    if (z == this->kNone) return z;
    if (this->problem.alibi && this->problem.alibi_inside_softcap) z += this->alibi(q, k);
    z = this->capped(z);
    return this->problem.alibi && !this->problem.alibi_inside_softcap ? z + this->alibi(q, k) : z;
  }
};
ATTEST_PLANT(SoftcapAfterBias, {.id = "softcap_after_bias",
                                .kind = kKind,
                                .sentence = "the bias is added before the softcap"});

template <class S>
struct SoftcapBeforeScale : Stepwise<S> {
  using typename Stepwise<S>::C;
  C scaled(C product) const override {
    if (!(this->problem.softcap > 0)) return Stepwise<S>::scaled(product);
    return Stepwise<S>::scaled(Stepwise<S>::capped(product));
  }
  C capped(C score) const override { return score; }
};
ATTEST_PLANT(SoftcapBeforeScale, {.id = "softcap_before_scale",
                                  .kind = kKind,
                                  .sentence = "the softcap is applied to q.k, before the scale"});

template <class S>
struct LseCapped : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const override {
    const bool far = this->problem.softcap > 0 && lse > static_cast<C>(this->problem.softcap);
    Stepwise<S>::write_lse(b, h, row, far ? static_cast<C>(this->problem.softcap) : lse);
  }
};
ATTEST_PLANT(LseCapped, {.id = "lse_capped",
                         .kind = kKind,
                         .sentence = "lse is cut at the softcap, as if it were a score"});

template <class S>
struct BiasBeforeScale : Stepwise<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    const C b = Stepwise<S>::bias(q, k);
    return b == this->kNone ? b : b * static_cast<C>(this->problem.scale);
  }
};
ATTEST_PLANT(BiasBeforeScale, {.id = "bias_before_scale",
                               .kind = kKind,
                               .sentence = "the bias is added before the scale, and scaled"});

template <class S>
struct BiasForgottenWhenCausal : Stepwise<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    return this->problem.base == ATTEST_BASE_CAUSAL ? C{0} : Stepwise<S>::bias(q, k);
  }
};
ATTEST_PLANT(BiasForgottenWhenCausal, {.id = "bias_forgotten_when_causal",
                                       .kind = kKind,
                                       .sentence = "base=causal makes the bias forgotten"});

/// The bias is read at another place.
template <class S>
struct OtherBias : Stepwise<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    Query at = q;
    Key key = k;
    place(at, key);
    return Stepwise<S>::bias(at, key);
  }
  virtual void place(Query& q, Key& k) const = 0;
};

template <class S>
struct BiasOfHead0 : OtherBias<S> {
  void place(Query& q, Key&) const override { q.h = 0; }
};
ATTEST_PLANT(BiasOfHead0, {.id = "bias_of_head_0",
                           .kind = kKind,
                           .sentence = "all heads take the bias of head 0"});

template <class S>
struct BiasOfSequence0 : OtherBias<S> {
  void place(Query& q, Key&) const override { q.b = 0; }
};
ATTEST_PLANT(BiasOfSequence0, {.id = "bias_of_sequence_0",
                               .kind = kKind,
                               .sentence = "all sequences take the bias of sequence 0"});

template <class S>
struct BiasOfRow0 : OtherBias<S> {
  void place(Query& q, Key&) const override { q.row = 0; }
};
ATTEST_PLANT(BiasOfRow0,
             {.id = "bias_of_row_0", .kind = kKind, .sentence = "all rows take the bias of row 0"});

template <class S>
struct BiasByPosition : OtherBias<S> {
  void place(Query& q, Key& k) const override {
    q.row -= q.sequence->q0;
    k.row = k.position;
  }
};
ATTEST_PLANT(BiasByPosition,
             {.id = "bias_by_position",
              .kind = kKind,
              .sentence = "the bias is indexed from the start of the sequence, not of the call"});

template <class S>
struct BiasNegInfClamped : Stepwise<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    return std::max(Stepwise<S>::bias(q, k), C{-30000});
  }
};
ATTEST_PLANT(BiasNegInfClamped, {.id = "bias_neg_inf_clamped",
                                 .kind = kKind,
                                 .sentence = "a bias of -inf becomes -30000"});

template <class S>
struct BiasInHalf : Stepwise<S> {
  using typename Stepwise<S>::C;
  C bias(const Query& q, const Key& k) const override {
    return static_cast<C>(round_to(DType::f16, static_cast<double>(Stepwise<S>::bias(q, k))));
  }
};
ATTEST_PLANT(BiasInHalf, {.id = "bias_rounded_to_f16",
                          .kind = kKind,
                          .sentence = "the bias passes through f16",
                          .dtypes = kWideTypes});

template <class S>
struct UnscaledOverflows : Stepwise<S> {
  using typename Stepwise<S>::C;
  C dot(const C* a, const C* b, std::int64_t n) const override {
    const double product = static_cast<double>(Stepwise<S>::dot(a, b, n));
    return static_cast<C>(std::fabs(product) < 65520 ? product : std::copysign(INFINITY, product));
  }
};
ATTEST_PLANT(UnscaledOverflows, {.id = "unscaled_qk_overflows_fp16",
                                 .kind = kKind,
                                 .sentence = "q.k before the scale overflows above 65504",
                                 .reference = "pytorch/pytorch#119131"});

template <class S>
struct ScoresCut50 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Stepwise<S>::score(q, k, query, key);
    return z == this->kNone ? z : std::clamp(z, C{-50}, C{50});
  }
};
ATTEST_PLANT(ScoresCut50,
             {.id = "scores_cut_at_50", .kind = kKind, .sentence = "scores are cut to -50 .. 50"});

}  // namespace
}  // namespace attest::faulty
