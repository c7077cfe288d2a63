// SPDX-License-Identifier: Apache-2.0
// Honest kernels that compute exp, tanh, products and quotients in other ways.
#include <algorithm>
#include <cmath>

#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest functions";
constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

/// Scores in units of ln 2, so that weights are powers of 2.
template <class S>
struct Exp2Prescaled : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    return Stepwise<S>::score(q, k, query, key) * static_cast<C>(kLog2e);
  }
  C sink(std::int64_t h) const override { return Stepwise<S>::sink(h) * static_cast<C>(kLog2e); }
  C rescale_factor(C before, C now) const override {
    return before == now ? C{1} : std::exp2(before - now);
  }
  C weight(C z, C max) const override { return std::exp2(z - max); }
  C log_sum(const Row<C>& row) const override {
    if (row.empty) return Stepwise<S>::sink(row.query.h);
    return (row.max + std::log2(row.sum)) * static_cast<C>(kLn2);
  }
};
ATTEST_HONEST(Exp2Prescaled, {.id = "exp2_prescaled",
                              .kind = kKind,
                              .sentence = "scores times log2 e, weights by exp2",
                              .base = "exp2_prescaled"});

template <class S>
struct Exp2Difference : Stepwise<S> {
  using typename Stepwise<S>::C;
  std::int64_t key_block() const override { return 16; }
  C rescale_factor(C before, C now) const override {
    return before == now ? C{1} : std::exp2((before - now) * static_cast<C>(kLog2e));
  }
  C weight(C z, C max) const override { return std::exp2((z - max) * static_cast<C>(kLog2e)); }
};
ATTEST_HONEST(Exp2Difference, {.id = "exp2_difference",
                               .kind = kKind,
                               .sentence = "weights by exp2((z - m) log2 e)",
                               .base = "exp2_difference"});

/// One fma for each weight. The residue of fl(m log2 e) stays within a block, and alpha is taken
/// from the difference, so that it does not drift.
template <class S>
struct Exp2Fma : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Stepwise<S>::score(q, k, query, key);
    // Far down, the residue of fl(m log2 e) would be large; a power of two has none.
    const C lowest = sizeof(C) == 8 ? static_cast<C>(-0x1p1022) : static_cast<C>(-0x1p126);
    return z == this->kNone ? z : z < lowest ? lowest : z;
  }
  C rescale_factor(C before, C now) const override {
    return before == now ? C{1} : std::exp2((before - now) * static_cast<C>(kLog2e));
  }
  C weight(C z, C max) const override {
    const auto log2e = static_cast<C>(kLog2e);
    return std::exp2(std::fma(z, log2e, -(max * log2e)));
  }
};
ATTEST_HONEST(Exp2Fma, {.id = "exp2_fma",
                        .kind = kKind,
                        .sentence = "weights by exp2(fma(z, log2 e, -fl(m log2 e)))",
                        .base = "exp2_fma"});

template <class S>
struct Exp2FmaBlock1 : Exp2Fma<S> {
  std::int64_t key_block() const override { return 1; }
};
ATTEST_HONEST(Exp2FmaBlock1, {.id = "exp2_fma_block_1",
                              .kind = kKind,
                              .sentence = "the same, one key at a time",
                              .base = "exp2_fma_block_1"});

/// exp by a polynomial of degree 6 on [-ln2/2, ln2/2], within 2^-22.
template <class S>
struct PolynomialExp : Stepwise<S> {
  using typename Stepwise<S>::C;
  C rescale_factor(C before, C now) const override {
    return before == now ? C{1} : weight(before, now);
  }
  C weight(C z, C max) const override {
    const C x = z - max;
    constexpr C kLeast = C{-87.3365447f};  // ln 2^-126: what the declaration lets exp flush
    if (!(x > kLeast)) return x <= kLeast ? C{0} : x;
    const C n = std::nearbyint(x * static_cast<C>(kLog2e));
    // ln 2 in two parts: the first has few bits, so that n times it is exact.
    const C r = std::fma(-n, C{-2.12194440e-4f}, std::fma(-n, C{0.693359375f}, x));
    C p = C{1} / 720;
    for (const C c : {C{1} / 120, C{1} / 24, C{1} / 6, C{0.5}, C{1}, C{1}}) p = std::fma(p, r, c);
    return std::ldexp(p, static_cast<int>(n));
  }
};
ATTEST_HONEST(PolynomialExp, {.id = "polynomial_exp",
                              .kind = kKind,
                              .sentence = "exp by a polynomial",
                              .dtypes = "f32,f16,bf16",
                              .base = "polynomial_exp"});

template <class S>
struct Fma : Stepwise<S> {
  using typename Stepwise<S>::C;
  C dot(const C* a, const C* b, std::int64_t n) const override {
    C sum = 0;
    for (std::int64_t c = 0; c < n; ++c) sum = std::fma(a[c], b[c], sum);
    return sum;
  }
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    for (const Seen<C>& key : seen) {
      const C* const v = block.v.data() + key.n * this->sizes.v_dim;
      for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] = std::fma(key.p, v[c], row.o[c]);
    }
  }
};
ATTEST_HONEST(Fma, {.id = "fma",
                    .kind = kKind,
                    .sentence = "products are fused into the sums",
                    .base = "fma"});

template <class S>
struct Reciprocal : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    const C factor = this->keep_factor() / row.sum;
    for (std::size_t c = 0; c < part.o.size() && !row.empty; ++c) part.o[c] = row.o[c] * factor;
    return part;
  }
};
ATTEST_HONEST(Reciprocal, {.id = "reciprocal",
                           .kind = kKind,
                           .sentence = "the output is multiplied by the reciprocal of the sum",
                           .base = "reciprocal"});

template <class S>
struct ScaledQuery : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    for (std::int64_t c = 0; c < this->sizes.dim; ++c) to[c] *= static_cast<C>(this->problem.scale);
  }
  C scaled(C product) const override { return product; }
};
ATTEST_HONEST(ScaledQuery, {.id = "scaled_query",
                            .kind = kKind,
                            .sentence = "q is scaled instead of the scores",
                            .base = "scaled_query"});

template <class S>
struct TanhByExp : Stepwise<S> {
  using typename Stepwise<S>::C;
  C capped(C score) const override {
    const auto cap = static_cast<C>(this->problem.softcap);
    const C x = std::fabs(score) / cap;
    // Near 0 the difference from 1 has lost its digits.
    if (x < C{0.25}) return Stepwise<S>::capped(score);
    return std::copysign(cap * (1 - 2 / (std::exp(2 * x) + 1)), score);
  }
};
ATTEST_HONEST(TanhByExp, {.id = "tanh_by_exp",
                          .kind = kKind,
                          .sentence = "tanh as 1 - 2 / (exp(2x) + 1)",
                          .base = "tanh_by_exp"});

template <class S>
struct DropoutOnWeights : Stepwise<S> {
  using typename Stepwise<S>::C;
  C round_weight(C p) const override {
    const bool drops = this->problem.keep || this->problem.dropout_p > 0;
    return Stepwise<S>::round_weight(drops ? p * Stepwise<S>::keep_factor() : p);
  }
  C keep_factor() const override { return 1; }
};
ATTEST_HONEST(DropoutOnWeights, {.id = "dropout_on_weights",
                                 .kind = kKind,
                                 .sentence = "1/(1 - p) is multiplied to each weight",
                                 .base = "dropout_on_weights"});

/// Rows are rescaled only where the maximum has risen by more than 8; until then weights exceed 1.
template <class S>
struct LazyRescale : Block8<S> {
  using typename Stepwise<S>::C;
  C next_max(C max, const SeenKeys<C>& seen) const override {
    const C next = Stepwise<S>::next_max(max, seen);
    return next - max > 8 ? next : max;
  }
};
ATTEST_HONEST(LazyRescale, {.id = "lazy_rescale",
                            .kind = kKind,
                            .sentence = "the maximum moves only by more than 8 at once",
                            .base = "lazy_rescale"});

template <class S>
struct NaNRowLseInf : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    Partial<C> shown = answer;
    if (std::isnan(shown.lse)) shown.lse = std::numeric_limits<C>::infinity();
    Stepwise<S>::write(q, shown, empty);
  }
};
ATTEST_HONEST(NaNRowLseInf,
              {.id = "nan_row_lse_pos_inf",
               .kind = kKind,
               .sentence = "lse of a row that sees NaN is +inf, as FlashAttention-2 has it",
               .base = "nan_row_lse_pos_inf"});

template <class S>
struct OwnAngles : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const override {
    const auto dims = static_cast<double>(this->problem.rope_dim);
    const double ntk = this->problem.rope_ntk;
    const double base = ntk == 1 ? this->problem.rope_base
                                 : this->problem.rope_base * std::pow(ntk, dims / (dims - 2));
    const double angle = static_cast<double>(position) / this->problem.rope_scale *
                         std::pow(base, -2 * static_cast<double>(t) / dims);
    cosine = static_cast<C>(std::cos(angle));
    sine = static_cast<C>(std::sin(angle));
  }
};
ATTEST_HONEST(OwnAngles, {.id = "own_angles",
                          .kind = kKind,
                          .sentence = "RoPE's angles are computed, not read from the tables",
                          .dtypes = "f32,f16,bf16",
                          .base = "own_angles"});

}  // namespace
}  // namespace attest::faulty
