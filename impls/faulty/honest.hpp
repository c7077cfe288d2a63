// SPDX-License-Identifier: Apache-2.0
// Honest kernels of other styles that faults start from too.
#pragma once

#include <cmath>
#include <type_traits>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {

/// The keys of a sequence in four parts, merged through their lse.
template <class S>
class Split4 : public Stepwise<S> {
 public:
  int num_splits(const Sequence&) const override { return 4; }
};

/// Blocks of eight keys: the running maximum moves often.
template <class S>
class Block8 : public Stepwise<S> {
 public:
  std::int64_t key_block() const override { return 8; }
};

/// To `digits` significant bits, half to even.
template <class C>
C to_bits(C x, int digits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  const C fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

/// q, k and v to the digits of tf32, those of an f64 call to the digits of f32.
template <class S>
class NarrowInputs : public Stepwise<S> {
 public:
  using typename Stepwise<S>::C;
  static constexpr int kDigits = std::is_same_v<S, double> ? 24 : 11;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    cut(to, this->sizes.dim);
  }
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_key(at, g, k, to);
    cut(to, this->sizes.dim);
  }
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    cut(to, this->sizes.v_dim);
  }

 private:
  static void cut(C* x, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) x[c] = to_bits(x[c], kDigits);
  }
};

/// The row's sum adds P as it was rounded.
template <class S>
class LFromRounded : public Stepwise<S> {
 public:
  using typename Stepwise<S>::C;
  C weight(C z, C max) const override { return this->stored(Stepwise<S>::weight(z, max)); }
};

}  // namespace attest::faulty
