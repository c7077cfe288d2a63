// SPDX-License-Identifier: Apache-2.0
// Honest rotary embeddings.
#include "impls/faulty/rope_steps.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest rope";

ATTEST_HONEST(RopeSteps, {.id = "rope",
                          .kind = kKind,
                          .sentence = "pair after pair, from the caller's tables",
                          .base = "rope",
                          .declares = kRope});

template <class S>
struct RopeOwnAngles : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    return this->own_angle(this->angles_told(), static_cast<long double>(position), t);
  }
};
ATTEST_HONEST(RopeOwnAngles, {.id = "rope_own_angles",
                              .kind = kKind,
                              .sentence = "angles from base, scale and ntk, not from the tables",
                              .dtypes = "f32,f16,bf16",
                              .base = "rope_own_angles",
                              .declares = kRope});

template <class S>
struct RopeThreeShears : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  using typename RopeSteps<S>::Turn;
  /// In double: a product less, and other roundings.
  void turn(Turn by, C& x, C& y) const override {
    const double a = x, b = y, c = by.cos, s = by.sin;
    const double shared = c * (a + b);
    x = static_cast<C>(shared - b * (c + s));
    y = static_cast<C>(shared + a * (s - c));
  }
};
ATTEST_HONEST(RopeThreeShears, {.id = "rope_three_products",
                                .kind = kKind,
                                .sentence = "three products a pair instead of four, in double",
                                .dtypes = "f32,f16,bf16",
                                .base = "rope_three_products",
                                .declares = kRope});

template <class S>
struct RopeRowsReversed : RopeSteps<S> {
  void run() override {
    for (std::int64_t i = this->rows(); i-- > 0;)
      for (std::int64_t b = 0; b < this->call.x->shape[0]; ++b)
        for (std::int64_t h = this->heads(); h-- > 0;) this->turn_row({b, h, i});
  }
};
ATTEST_HONEST(RopeRowsReversed, {.id = "rope_rows_reversed",
                                 .kind = kKind,
                                 .sentence = "rows outside heads, from the last to the first",
                                 .base = "rope_rows_reversed",
                                 .declares = kRope});

}  // namespace
}  // namespace attest::faulty
