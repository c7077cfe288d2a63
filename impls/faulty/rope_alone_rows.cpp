// SPDX-License-Identifier: Apache-2.0
// Faults of the rotary embedding alone: which channels and rows turn, which way, and how they are
// stored.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "impls/faulty/rope_steps.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "rope component";

template <class S>
struct RopePairsHalf : RopeSteps<S> {
  std::int64_t first_of(std::int64_t t) const override { return t; }
  std::int64_t second_of(std::int64_t t) const override { return t + this->rope_dim() / 2; }
};
ATTEST_PLANT(RopePairsHalf, {.id = "rope_alone_pairs_half",
                             .kind = kKind,
                             .sentence = "halves are paired where neighbours should be",
                             .base = "rope",
                             .declares = kRope});

template <class S>
struct RopePairsNeighbours : RopeSteps<S> {
  std::int64_t first_of(std::int64_t t) const override { return 2 * t; }
  std::int64_t second_of(std::int64_t t) const override { return 2 * t + 1; }
};
ATTEST_PLANT(RopePairsNeighbours, {.id = "rope_alone_pairs_neighbours",
                                   .kind = kKind,
                                   .sentence = "neighbours are paired where halves should be",
                                   .base = "rope",
                                   .declares = kRope});

template <class S>
struct RopeHalfOfHead : RopeSteps<S> {
  std::int64_t second_of(std::int64_t t) const override {
    if (this->call.pairing == ATTEST_ROPE_INTERLEAVED) return 2 * t + 1;
    return t + this->channels() / 2;
  }
};
ATTEST_PLANT(
    RopeHalfOfHead,
    {.id = "rope_alone_half_of_head_dim",
     .kind = kKind,
     .sentence = "the partner of a channel stands half a head off, not half the rotated channels",
     .base = "rope",
     .declares = kRope});

template <class S>
struct RopeAlonePartial : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  std::int64_t rope_dim() const override { return this->channels() / 2 * 2; }
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->rope_dim() == this->call.rope_dim) return RopeSteps<S>::angle(position, t);
    auto told = this->angles_told();
    told.dims = static_cast<long double>(this->rope_dim());
    return this->own_angle(told, static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(RopeAlonePartial, {.id = "rope_alone_partial_ignored",
                                .kind = kKind,
                                .sentence = "all channels are turned, not the first rope_dim",
                                .reference = "vllm-project/vllm#43676",
                                .base = "rope",
                                .declares = kRope});

template <class S>
struct RopePassUnwritten : RopeSteps<S> {
  void pass(const S&, S&) const override {}
};
ATTEST_PLANT(RopePassUnwritten, {.id = "rope_alone_pass_unwritten",
                                 .kind = kKind,
                                 .sentence = "channels that are not turned are not written",
                                 .base = "rope",
                                 .declares = kRope});

template <class S>
struct RopePassZero : RopeSteps<S> {
  void pass(const S&, S& to) const override { to = narrow<S>(0); }
};
ATTEST_PLANT(RopePassZero, {.id = "rope_alone_pass_zero",
                            .kind = kKind,
                            .sentence = "channels that are not turned become 0",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeLastPair : RopeSteps<S> {
  std::int64_t pairs() const override {
    const std::int64_t all = RopeSteps<S>::pairs();
    return all > 4 && all % 4 != 0 ? all - 1 : all;
  }
};
ATTEST_PLANT(RopeLastPair,
             {.id = "rope_alone_last_pair_missed",
              .kind = kKind,
              .sentence = "the last pair is left out where pairs are no multiple of four",
              .base = "rope",
              .declares = kRope});

template <class S>
struct RopeAliased : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  using typename RopeSteps<S>::Turn;
  void turn(Turn by, C& x, C& y) const override {
    x = x * by.cos - y * by.sin;
    y = x * by.sin + y * by.cos;
  }
};
ATTEST_PLANT(RopeAliased,
             {.id = "rope_alone_overwritten_partner",
              .kind = kKind,
              .sentence = "the second channel of a pair is made from the first as already turned",
              .base = "rope",
              .declares = kRope});

template <class S>
struct RopeSineSign : RopeSteps<S> {
  bool inverse() const override { return !this->call.inverse; }
};
ATTEST_PLANT(RopeSineSign, {.id = "rope_alone_sine_sign",
                            .kind = kKind,
                            .sentence = "turns the wrong way",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeInverseIgnored : RopeSteps<S> {
  bool inverse() const override { return false; }
};
ATTEST_PLANT(RopeInverseIgnored, {.id = "rope_alone_inverse_ignored",
                                  .kind = kKind,
                                  .sentence = "turns forward where it should turn back",
                                  .base = "rope",
                                  .declares = kRope});

template <class S>
struct RopeOneSine : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  using typename RopeSteps<S>::Turn;
  bool inverse() const override { return false; }
  void turn(Turn by, C& x, C& y) const override {
    const C sine = this->call.inverse ? -by.sin : by.sin;
    const C turned = x * by.cos - y * sine;
    y = x * by.sin + y * by.cos;
    x = turned;
  }
};
ATTEST_PLANT(RopeOneSine,
             {.id = "rope_alone_inverse_half_done",
              .kind = kKind,
              .sentence = "turning back negates the sine in the first channel of a pair alone",
              .base = "rope",
              .declares = kRope});

template <class S>
struct RopeFirstHead : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  bool turns(const Row& row) const override { return row.h == 0; }
};
ATTEST_PLANT(RopeFirstHead, {.id = "rope_alone_first_head_only",
                             .kind = kKind,
                             .sentence = "heads behind the first are copied",
                             .base = "rope",
                             .declares = kRope});

template <class S>
struct RopeOddRows : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  bool turns(const Row& row) const override { return row.i % 2 == 0; }
};
ATTEST_PLANT(RopeOddRows, {.id = "rope_alone_odd_rows_missed",
                           .kind = kKind,
                           .sentence = "odd rows are copied",
                           .base = "rope",
                           .declares = kRope});

template <class S>
struct RopeInPlace : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  void turn_row(const Row& row) override {
    RopeSteps<S>::turn_row(row);
    S* const x = output_row<S>(this->call.x, row.b, row.h, row.i);
    const S* const y = this->output(row);
    for (std::int64_t c = 0; c < this->channels(); ++c)
      x[c * this->call.x->strides[3]] = y[c * this->call.y->strides[3]];
  }
};
ATTEST_PLANT(RopeInPlace, {.id = "rope_alone_in_place",
                           .kind = kKind,
                           .sentence = "turns x itself, and copies it",
                           .base = "rope",
                           .declares = kRope});

template <class S>
struct RopeStridesOfX : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  S* output(const Row& row) const override {
    const std::int64_t* const strides = this->call.x->strides;
    return static_cast<S*>(this->call.y->data) + row.b * strides[0] + row.h * strides[1] +
           row.i * strides[2];
  }
  std::int64_t output_stride() const override { return this->call.x->strides[3]; }
};
ATTEST_PLANT(RopeStridesOfX, {.id = "rope_alone_strides_of_x",
                              .kind = kKind,
                              .sentence = "y is written with the strides of x",
                              .base = "rope",
                              .declares = kRope});

template <class S>
struct RopeRowTail : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  void turn_row(const Row& row) override {
    const S* const x = row_of<S>(this->call.x, row.b, row.h, row.i);
    volatile double sum = 0;
    for (std::int64_t c = this->channels(); c % 4 != 0; ++c)
      sum = sum + static_cast<double>(widen(x[c * this->call.x->strides[3]]));
    RopeSteps<S>::turn_row(row);
  }
};
ATTEST_PLANT(RopeRowTail, {.id = "rope_alone_reads_past_row",
                           .kind = kKind,
                           .sentence = "a row is read to the next multiple of four channels",
                           .base = "rope",
                           .declares = kRope});

template <class S>
struct RopeTruncates : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  S stored(C value) const override {
    S down = narrow<S>(value);
    if constexpr (sizeof(S) == 2)
      if (std::fabs(widen(down)) > std::fabs(value)) --down.bits;
    return down;
  }
};
ATTEST_PLANT(RopeTruncates, {.id = "rope_alone_truncates",
                             .kind = kKind,
                             .sentence = "y is cut to its type, not rounded",
                             .dtypes = kNarrowTypes,
                             .base = "rope",
                             .declares = kRope});

template <class S>
struct RopeNarrowTables : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    const Turn wide = RopeSteps<S>::angle(position, t);
    return {rounded<S>(wide.cos), rounded<S>(wide.sin)};
  }
};
ATTEST_PLANT(RopeNarrowTables, {.id = "rope_alone_tables_narrow",
                                .kind = kKind,
                                .sentence = "cos and sin are rounded to the type of x",
                                .dtypes = kNarrowTypes,
                                .base = "rope",
                                .declares = kRope});

template <class S>
struct RopeNarrowProducts : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  using typename RopeSteps<S>::Turn;
  void turn(Turn by, C& x, C& y) const override {
    const C turned = rounded<S>(x * by.cos) - rounded<S>(y * by.sin);
    y = rounded<S>(x * by.sin) + rounded<S>(y * by.cos);
    x = turned;
  }
};
ATTEST_PLANT(RopeNarrowProducts,
             {.id = "rope_alone_products_narrow",
              .kind = kKind,
              .sentence = "both products are rounded to the type of x before they are added",
              .dtypes = kNarrowTypes,
              .base = "rope",
              .declares = kRope});

}  // namespace
}  // namespace attest::faulty
