// SPDX-License-Identifier: Apache-2.0
// Honest kernels that round in other places, and declare it.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest formats";

#define ATTEST_FAULTY_PROMISES " deterministic batch_invariant thread_invariant masked_nan_safe"

template <class S>
struct PInF32 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override { return p; }
};
ATTEST_HONEST(PInF32, {.id = "p_in_f32",
                       .kind = kKind,
                       .sentence = "P keeps the accumulator's format",
                       .dtypes = kNarrowTypes,
                       .base = "p_in_f32",
                       .declares = "features=all precision=f32" ATTEST_FAULTY_PROMISES});

ATTEST_HONEST(
    LFromRounded,
    {.id = "l_from_rounded",
     .kind = kKind,
     .sentence = "the sum adds the rounded P",
     .dtypes = kNarrowTypes,
     .base = "l_from_rounded",
     .declares =
         "features=all precision=mma_f32acc profile.l_from_rounded=1" ATTEST_FAULTY_PROMISES});

/// Two passes: maximum and sum first, then weights that sum to 1 before they are rounded.
template <class S>
struct PNormalised : Stepwise<S> {
  using typename Stepwise<S>::C;
  void sweep(const Sequence& at, std::int64_t h, Span keys,
             std::vector<Row<C>>& rows) const override {
    Stepwise<S>::sweep(at, h, keys, rows);
    for (Row<C>& row : rows) row.o.assign(row.o.size(), C{0});
    Block<C> block;
    for (block.first = keys.begin; block.first < keys.end; block.first += this->key_block()) {
      block.count = std::min(this->key_block(), keys.end - block.first);
      this->load_block(at, h, block);
      for (Row<C>& row : rows) add(row, block);
    }
  }
  void add(Row<C>& row, const Block<C>& block) const {
    SeenKeys<C> seen;
    for (std::int64_t n = 0; n < block.count; ++n) {
      const Key& k = block.keys[static_cast<std::size_t>(n)];
      if (!this->visible(row.query, k) || (this->problem.keep && !this->kept(row.query, k)))
        continue;
      const C z = this->score(row.query, k, row.q, block.k.data() + n * this->sizes.dim);
      if (z == this->kNone) continue;
      seen.push_back({n, z, this->round_weight(this->weight(z, row.max) / row.sum)});
    }
    this->accumulate(row, seen, block);
  }
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    for (std::size_t c = 0; c < part.o.size(); ++c) part.o[c] = row.o[c] * this->keep_factor();
    return part;
  }
};
ATTEST_HONEST(
    PNormalised,
    {.id = "p_normalised",
     .kind = kKind,
     .sentence = "P is divided by its sum before it is rounded",
     .dtypes = kNarrowTypes,
     .base = "p_normalised",
     .declares =
         "features=all precision=mma_f32acc profile.p_normalised=1" ATTEST_FAULTY_PROMISES});

template <class S>
struct Tf32 : NarrowInputs<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override { return to_bits(p, this->kDigits); }
};
ATTEST_HONEST(Tf32, {.id = "tf32",
                     .kind = kKind,
                     .sentence = "q, k, P and v pass through tf32",
                     .dtypes = "f32",
                     .base = "tf32",
                     .declares = "features=all precision=f32_tf32" ATTEST_FAULTY_PROMISES});

/// Every result of an operation passes through f16.
template <class S>
struct Fp16Accumulators : Stepwise<S> {
  using typename Stepwise<S>::C;
  static C half(C x) { return static_cast<C>(round_to(DType::f16, static_cast<double>(x))); }

  void rotate(C* row, std::int64_t position) const override {
    const bool interleaved = this->problem.rope == ATTEST_ROPE_INTERLEAVED;
    for (std::int64_t t = 0; t < this->problem.rope_dim / 2; ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      C& x = row[interleaved ? 2 * t : t];
      C& y = row[interleaved ? 2 * t + 1 : t + this->problem.rope_dim / 2];
      const C before = x;
      x = half(half(before * half(cosine)) - half(y * half(sine)));
      y = half(half(before * half(sine)) + half(y * half(cosine)));
    }
  }
  C dot(const C* a, const C* b, std::int64_t n) const override {
    C sum = 0;
    for (std::int64_t c = 0; c < n; ++c) sum = half(sum + a[c] * b[c]);
    return sum;
  }
  C scaled(C product) const override {
    return half(half(static_cast<C>(this->problem.scale)) * product);
  }
  C capped(C score) const override {
    const C cap = half(static_cast<C>(this->problem.softcap));
    return half(cap * half(std::tanh(half(score / cap))));
  }
  C alibi(const Query& q, const Key& k) const override {
    const C distance = static_cast<C>(k.position - q.position);
    const C steps = this->problem.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::fabs(distance)
                    : this->problem.alibi == ATTEST_ALIBI_SIGNED ? distance
                                                                 : static_cast<C>(k.position);
    return half(half(this->slope(q)) * half(steps));
  }
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    C z = this->scaled(this->dot(query, key, this->sizes.dim));
    if (this->problem.alibi && this->problem.alibi_inside_softcap) z = half(z + alibi(q, k));
    if (this->problem.softcap > 0) z = capped(z);
    if (this->problem.alibi && !this->problem.alibi_inside_softcap) z = half(z + alibi(q, k));
    return this->problem.bias ? half(z + this->bias(q, k)) : z;
  }
  C sink(std::int64_t h) const override { return half(Stepwise<S>::sink(h)); }
  C rescale_factor(C before, C now) const override {
    return before == now ? C{1} : half(std::exp(half(before - now)));
  }
  void rescale(Row<C>& row, C factor) const override {
    row.sum = half(row.sum * factor);
    for (C& o : row.o) o = half(o * factor);
  }
  C weight(C z, C max) const override { return half(std::exp(half(z - max))); }
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    for (const Seen<C>& key : seen) sum = half(sum + key.p);
    return sum;
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    for (const Seen<C>& key : seen) {
      const C* const v = block.v.data() + key.n * this->sizes.v_dim;
      for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] = half(row.o[c] + key.p * v[c]);
    }
  }
  C log_sum(const Row<C>& row) const override { return half(row.max + half(std::log(row.sum))); }
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part{row.o, log_sum(row)};
    for (std::size_t c = 0; c < part.o.size() && !row.empty; ++c)
      part.o[c] = half(half(row.o[c] / row.sum) * half(this->keep_factor()));
    return part;
  }
};
constexpr const char* kFp16Acc = "features=all precision=fp16acc" ATTEST_FAULTY_PROMISES;
ATTEST_HONEST(Fp16Accumulators, {.id = "fp16acc",
                                 .kind = kKind,
                                 .sentence = "scores, weights and sums in f16",
                                 .dtypes = "f16",
                                 .base = "fp16acc",
                                 .declares = kFp16Acc});

template <class S>
struct Fp16Block1 : Fp16Accumulators<S> {
  std::int64_t key_block() const override { return 1; }
};
ATTEST_HONEST(Fp16Block1, {.id = "fp16acc_block_1",
                           .kind = kKind,
                           .sentence = "scores, weights and sums in f16, one key at a time",
                           .dtypes = "f16",
                           .base = "fp16acc_block_1",
                           .declares = kFp16Acc});

template <class S>
struct Fp16Exp2 : Fp16Accumulators<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return 16; }
  C rescale_factor(C before, C now) const override {
    if (before == now) return 1;
    return this->half(std::exp2(this->half(this->half(before - now) * log2e())));
  }
  C weight(C z, C max) const override {
    return this->half(std::exp2(this->half(this->half(z - max) * log2e())));
  }
  static C log2e() { return Fp16Accumulators<S>::half(static_cast<C>(1.4426950408889634)); }
};
ATTEST_HONEST(Fp16Exp2, {.id = "fp16acc_exp2",
                         .kind = kKind,
                         .sentence = "scores, weights and sums in f16, weights by exp2",
                         .dtypes = "f16",
                         .base = "fp16acc_exp2",
                         .declares = kFp16Acc});

/// One fma for each weight, with a constant and a smallest score for which the residue of
/// fl(m log2 e) is 0 where it would matter.
template <class S>
struct Fp16FmaBlock1 : Fp16Exp2<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return 1; }
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Fp16Exp2<S>::score(q, k, query, key);
    return z == this->kNone ? z : std::max(z, static_cast<C>(-0x1p14));
  }
  C weight(C z, C max) const override {
    const C log2e = this->log2e();
    return this->half(std::exp2(std::fma(z, log2e, -this->half(max * log2e))));
  }
};
ATTEST_HONEST(Fp16FmaBlock1,
              {.id = "fp16acc_fma_block_1",
               .kind = kKind,
               .sentence = "in f16, weights by exp2(fma(z, c, -fl(m c))), key by key",
               .dtypes = "f16",
               .base = "fp16acc_fma_block_1",
               .declares = kFp16Acc});

/// Scores pass through the storage type, as between two separate kernels.
template <class S>
struct ScoresStored : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    return this->stored(Stepwise<S>::score(q, k, query, key));
  }
};
template <class S>
struct ScoresInF16 : ScoresStored<S> {};
ATTEST_HONEST(
    ScoresInF16,
    {.id = "scores_in_f16",
     .kind = kKind,
     .sentence = "scores pass through f16",
     .dtypes = "f16",
     .base = "scores_in_f16",
     .declares = "features=all precision=mma_f32acc profile.u_score=0x1p-11 "
                 "profile.eta_score=0x1p-25 profile.max_score=65504" ATTEST_FAULTY_PROMISES});
template <class S>
struct ScoresInBf16 : ScoresStored<S> {};
ATTEST_HONEST(ScoresInBf16, {.id = "scores_in_bf16",
                             .kind = kKind,
                             .sentence = "scores pass through bf16",
                             .dtypes = "bf16",
                             .base = "scores_in_bf16",
                             .declares = "features=all precision=mma_f32acc profile.u_score=0x1p-8 "
                                         "profile.eta_score=0x1p-134" ATTEST_FAULTY_PROMISES});

/// Adders that cut instead of rounding, as some matrix units have.
template <class S>
struct Truncating : Stepwise<S> {
  using typename Stepwise<S>::C;
  static C cut(double exact) {
    const auto nearest = static_cast<float>(exact);
    const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(exact);
    return away && std::isfinite(nearest) ? std::nextafter(nearest, 0.0F) : nearest;
  }
  C dot(const C* a, const C* b, std::int64_t n) const override {
    C sum = 0;
    for (std::int64_t c = 0; c < n; ++c)
      sum = cut(static_cast<double>(sum) + static_cast<double>(a[c]) * static_cast<double>(b[c]));
    return sum;
  }
  C add_up(C sum, const SeenKeys<C>& seen) const override {
    for (const Seen<C>& key : seen)
      sum = cut(static_cast<double>(sum) + static_cast<double>(key.p));
    return sum;
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    for (const Seen<C>& key : seen) {
      const C* const v = block.v.data() + key.n * this->sizes.v_dim;
      for (std::size_t c = 0; c < row.o.size(); ++c)
        row.o[c] = cut(static_cast<double>(row.o[c]) +
                       static_cast<double>(key.p) * static_cast<double>(v[c]));
    }
  }
};
ATTEST_HONEST(
    Truncating,
    {.id = "truncating",
     .kind = kKind,
     .sentence = "accumulators that truncate",
     .dtypes = "f32,f16,bf16",
     .base = "truncating",
     .declares = "features=all precision=mma_f32acc profile.c_acc=2" ATTEST_FAULTY_PROMISES});

/// Dot products and sums in double, for types that need it least.
template <class S>
struct WideSums : Stepwise<S> {
  using typename Stepwise<S>::C;
  C dot(const C* a, const C* b, std::int64_t n) const override {
    double sum = 0;
    for (std::int64_t c = 0; c < n; ++c)
      sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    return static_cast<C>(sum);
  }
  C weight(C z, C max) const override {
    return static_cast<C>(std::exp(static_cast<double>(z) - static_cast<double>(max)));
  }
};
ATTEST_HONEST(WideSums, {.id = "wide_dots",
                         .kind = kKind,
                         .sentence = "dot products and exp in double",
                         .dtypes = "f32,f16,bf16",
                         .base = "wide_dots"});

#undef ATTEST_FAULTY_PROMISES

}  // namespace
}  // namespace attest::faulty
