// SPDX-License-Identifier: Apache-2.0
// Faults of arithmetic: formats narrower than declared, biased rounding, loose functions, lse.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "numbers";

template <class C>
C through(DType type, C x) {
  return static_cast<C>(round_to(type, static_cast<double>(x)));
}

/// The type below a storage type.
template <class S>
constexpr DType kBelow = std::is_same_v<S, double>  ? DType::f32
                         : std::is_same_v<S, float> ? DType::f16
                                                    : DType::bf16;

template <class S>
struct POneFormatLower : Stepwise<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override {
    return std::is_same_v<S, Bf16> ? to_bits(p, 5) : through(kBelow<S>, p);
  }
};
ATTEST_PLANT(POneFormatLower, {.id = "p_one_format_lower",
                               .kind = kKind,
                               .sentence = "P is stored in the next narrower format"});

template <class S>
struct PTruncated : Stepwise<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override {
    const C nearest = this->stored(p);
    if constexpr (sizeof(S) == 2) {
      // A weight is positive: one less in its bits is the number below.
      if (nearest > p) return widen(S{static_cast<std::uint16_t>(narrow<S>(p).bits - 1)});
    }
    return nearest;
  }
};
ATTEST_PLANT(PTruncated, {.id = "p_truncated",
                          .kind = kKind,
                          .sentence = "P is cut to its type instead of rounded: always less",
                          .dtypes = kNarrowTypes});

template <class S>
struct PSubnormalFlushed : Stepwise<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override {
    return p < C{0x1p-12} ? C{0} : Stepwise<S>::round_weight(p);
  }
};
ATTEST_PLANT(PSubnormalFlushed,
             {.id = "p_below_2_12_flushed",
              .kind = kKind,
              .sentence = "weights below 2^-12 of the largest are dropped from o"});

template <class S>
struct SmallWeightsSkipped : Stepwise<S> {
  using typename Stepwise<S>::C;
  C weight(C z, C max) const override {
    return z - max < C{-7} ? C{0} : Stepwise<S>::weight(z, max);
  }
};
ATTEST_PLANT(SmallWeightsSkipped, {.id = "weights_below_e_7_skipped",
                                   .kind = kKind,
                                   .sentence = "weights below e^-7 of the largest are 0"});

template <class S>
struct SStoredBf16 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    return through(DType::bf16, Stepwise<S>::score(q, k, query, key));
  }
};
ATTEST_PLANT(SStoredBf16, {.id = "s_stored_bf16",
                           .kind = kKind,
                           .sentence = "scores are stored in bf16 before the softmax"});

template <class S>
struct SStoredF16 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C scaled(C product) const override { return through(DType::f16, Stepwise<S>::scaled(product)); }
};
ATTEST_PLANT(SStoredF16, {.id = "s_stored_f16",
                          .kind = kKind,
                          .sentence = "scores are stored in f16 before the softmax"});

ATTEST_PLANT(NarrowInputs, {.id = "tf32_inputs",
                            .kind = kKind,
                            .sentence = "q, k, v pass through tf32 (f64: through f32)",
                            .dtypes = kWideTypes});

template <class S>
struct QPrescaledLow : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    for (std::int64_t c = 0; c < this->sizes.dim; ++c)
      to[c] = this->stored(to[c] * static_cast<C>(this->problem.scale));
  }
  C scaled(C product) const override { return product; }
};
ATTEST_PLANT(QPrescaledLow, {.id = "q_scaled_in_storage_type",
                             .kind = kKind,
                             .sentence = "q is scaled in 16 bits before the product",
                             .dtypes = kNarrowTypes});

template <class S>
struct RotatedLow : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotate(C* row, std::int64_t position) const override {
    Stepwise<S>::rotate(row, position);
    for (std::int64_t c = 0; c < this->problem.rope_dim; ++c) row[c] = this->stored(row[c]);
  }
};
ATTEST_PLANT(RotatedLow, {.id = "rotated_in_storage_type",
                          .kind = kKind,
                          .sentence = "rotated q and k are stored in 16 bits",
                          .dtypes = kNarrowTypes});

/// exp with a relative error of a given size.
template <class S, int kDecimals>
struct LooseExp : Stepwise<S> {
  using typename Stepwise<S>::C;
  C weight(C z, C max) const override {
    const double error = std::pow(10.0, -kDecimals) * std::sin(37 * static_cast<double>(z));
    return Stepwise<S>::weight(z, max) * static_cast<C>(1 + error);
  }
};
template <class S>
struct LooseExp4 : LooseExp<S, 4> {};
ATTEST_PLANT(LooseExp4,
             {.id = "exp_1e_4", .kind = kKind, .sentence = "exp has a relative error of 1e-4"});
template <class S>
struct LooseExp5 : LooseExp<S, 5> {};
ATTEST_PLANT(LooseExp5,
             {.id = "exp_1e_5", .kind = kKind, .sentence = "exp has a relative error of 1e-5"});

template <class S>
struct ExpInF32 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C weight(C z, C max) const override { return std::exp(static_cast<float>(z - max)); }
};
ATTEST_PLANT(ExpInF32, {.id = "f64_exp_in_f32",
                        .kind = kKind,
                        .sentence = "exp is computed in f32",
                        .dtypes = "f64"});

template <class S>
struct StatsInF32 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    row.sum = static_cast<float>(row.sum);
  }
};
ATTEST_PLANT(StatsInF32, {.id = "stats_in_f32_for_f64",
                          .kind = kKind,
                          .sentence = "maximum and sum are kept in f32",
                          .dtypes = "f64"});

template <class S>
struct OutputThroughF32 : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    for (C& o : part.o) o = static_cast<float>(o);
    return part;
  }
};
ATTEST_PLANT(OutputThroughF32, {.id = "f64_output_through_f32",
                                .kind = kKind,
                                .sentence = "the output passes through f32",
                                .dtypes = "f64"});

template <class S>
struct OAccumulatedLow : Stepwise<S> {
  using typename Stepwise<S>::C;
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    for (const Seen<C>& key : seen) {
      Stepwise<S>::accumulate(row, {key}, block);
      for (C& o : row.o) o = sizeof(S) == 2 ? this->stored(o) : through(kBelow<S>, o);
    }
  }
};
ATTEST_PLANT(OAccumulatedLow,
             {.id = "o_accumulated_low",
              .kind = kKind,
              .sentence = "the output is accumulated in the storage type (f32: f16, f64: f32)"});

template <class S>
struct LAccumulatedLow : Stepwise<S> {
  using typename Stepwise<S>::C;
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    for (const Seen<C>& key : seen)
      sum = through(sizeof(S) == 2 ? DType::bf16 : kBelow<S>, sum + key.p);
    return sum;
  }
};
ATTEST_PLANT(LAccumulatedLow, {.id = "l_accumulated_low",
                               .kind = kKind,
                               .sentence = "the sum of the weights is kept in a narrow type"});

ATTEST_PLANT(LFromRounded, {.id = "l_from_rounded_undeclared",
                            .kind = kKind,
                            .sentence = "the sum adds the rounded P, though not declared",
                            .dtypes = kNarrowTypes});

template <class S>
struct ReciprocalLoose : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    for (C& o : part.o) o *= C{1} + C{0x1p-10};
    return part;
  }
};
ATTEST_PLANT(ReciprocalLoose, {.id = "reciprocal_1e_3",
                               .kind = kKind,
                               .sentence = "1/l is an estimate, too large by 2^-10"});

template <class S>
struct OTruncated : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    if constexpr (sizeof(S) == 2) {
      for (C& o : part.o) {
        const S nearest = narrow<S>(o);
        // One less in the bits is nearer to 0 in either sign.
        if (std::fabs(widen(nearest)) > std::fabs(o))
          o = widen(S{static_cast<std::uint16_t>(nearest.bits - 1)});
      }
    }
    return part;
  }
};
ATTEST_PLANT(OTruncated, {.id = "o_truncated",
                          .kind = kKind,
                          .sentence = "the output is cut to its type instead of rounded",
                          .dtypes = kNarrowTypes});

template <class S>
struct OSignOfSmall : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    for (C& o : part.o)
      if (std::fabs(o) < C{1e-3}) o = std::fabs(o);
    return part;
  }
};
ATTEST_PLANT(OSignOfSmall, {.id = "small_outputs_lose_sign",
                            .kind = kKind,
                            .sentence = "outputs below 1e-3 lose their sign"});

/// lse in another unit or format.
template <class S>
struct OtherLse : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const override {
    Stepwise<S>::write_lse(b, h, row, change(lse));
  }
  virtual C change(C lse) const = 0;
};

template <class S>
struct LseBase2 : OtherLse<S> {
  using typename Stepwise<S>::C;
  C change(C lse) const override { return lse * static_cast<C>(1.4426950408889634); }
};
ATTEST_PLANT(LseBase2, {.id = "lse_base_2",
                        .kind = kKind,
                        .sentence = "lse is a logarithm to base 2",
                        .reference = "sgl-project/sglang#40903"});

template <class S>
struct LseTimesLn2 : OtherLse<S> {
  using typename Stepwise<S>::C;
  C change(C lse) const override { return lse * static_cast<C>(0.6931471805599453); }
};
ATTEST_PLANT(LseTimesLn2, {.id = "lse_times_ln2",
                           .kind = kKind,
                           .sentence = "lse is converted from base 2 once too often",
                           .reference = "pytorch/pytorch#181645"});

template <class S>
struct LseBf16 : OtherLse<S> {
  using typename Stepwise<S>::C;
  C change(C lse) const override { return through(DType::bf16, lse); }
};
ATTEST_PLANT(LseBf16,
             {.id = "lse_through_bf16", .kind = kKind, .sentence = "lse passes through bf16"});

template <class S>
struct LseWithoutLog : Stepwise<S> {
  using typename Stepwise<S>::C;
  C log_sum(const Row<C>& row) const override {
    return row.sum == 0 ? this->kNone : row.max + row.sum;
  }
};
ATTEST_PLANT(LseWithoutLog,
             {.id = "lse_without_log", .kind = kKind, .sentence = "lse is max + sum"});

template <class S>
struct LseWithoutMax : Stepwise<S> {
  using typename Stepwise<S>::C;
  C log_sum(const Row<C>& row) const override {
    return row.sum == 0 ? this->kNone : std::log(row.sum);
  }
};
ATTEST_PLANT(LseWithoutMax,
             {.id = "lse_without_max", .kind = kKind, .sentence = "lse is log(sum) alone"});

}  // namespace
}  // namespace attest::faulty
