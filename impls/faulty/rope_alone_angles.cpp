// SPDX-License-Identifier: Apache-2.0
// Faults of the rotary embedding alone: at which positions and by which angles rows turn.
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
struct RopeLocal : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  std::int64_t position(const Row& row) const override {
    return std::min(this->call.rope_position + row.i,
                    this->call.rope_position + this->call.cos->shape[0] - 1);
  }
};
ATTEST_PLANT(RopeLocal, {.id = "rope_alone_positions_local",
                         .kind = kKind,
                         .sentence = "rows are counted from 0: position ids are ignored",
                         .base = "rope",
                         .declares = kRope});

template <class S>
struct RopeOfFirstSequence : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  std::int64_t position(const Row& row) const override { return this->given_position(0, row.i); }
};
ATTEST_PLANT(RopeOfFirstSequence, {.id = "rope_alone_positions_of_first",
                                   .kind = kKind,
                                   .sentence = "every sequence has the positions of the first",
                                   .base = "rope",
                                   .declares = kRope});

template <class S>
struct RopeOfFirstRow : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  using typename RopeSteps<S>::Turn;
  std::int64_t position(const Row& row) const override {
    return this->given_position(row.b, 0) + row.i;
  }
  Turn angle(std::int64_t position, std::int64_t t) const override {
    const std::int64_t r = position - this->call.rope_position;
    if (r >= 0 && r < this->call.cos->shape[0]) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(
    RopeOfFirstRow,
    {.id = "rope_alone_positions_consecutive",
     .kind = kKind,
     .sentence = "only the first position of a sequence is read; the others are counted from it",
     .base = "rope",
     .declares = kRope});

template <class S>
struct RopeHeadPosition : RopeSteps<S> {
  using typename RopeSteps<S>::Row;
  using typename RopeSteps<S>::Turn;
  std::int64_t position(const Row& row) const override {
    return this->given_position(row.b, row.i) + row.h;
  }
  Turn angle(std::int64_t position, std::int64_t t) const override {
    const std::int64_t r = position - this->call.rope_position;
    if (r < this->call.cos->shape[0]) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(RopeHeadPosition, {.id = "rope_alone_head_as_position",
                                .kind = kKind,
                                .sentence = "the number of the head is added to the position",
                                .base = "rope",
                                .declares = kRope});

template <class S>
struct RopeOneAhead : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    return this->own_angle(this->angles_told(), static_cast<long double>(position + 1), t);
  }
};
ATTEST_PLANT(RopeOneAhead, {.id = "rope_alone_position_one_ahead",
                            .kind = kKind,
                            .sentence = "positions are counted from 1",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeTableShort : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (position < 2048) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), 2047, t);
  }
};
ATTEST_PLANT(RopeTableShort,
             {.id = "rope_alone_table_too_short",
              .kind = kKind,
              .sentence = "positions beyond the 2048 rows of its own table take the last row",
              .base = "rope",
              .declares = kRope});

template <class S>
struct RopeNegative : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (position >= 0) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), 0, t);
  }
};
ATTEST_PLANT(RopeNegative, {.id = "rope_alone_negative_as_zero",
                            .kind = kKind,
                            .sentence = "positions below 0 are taken as 0",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeSixteenBits : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (position == static_cast<std::int16_t>(position)) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), static_cast<std::int16_t>(position), t);
  }
};
ATTEST_PLANT(RopeSixteenBits, {.id = "rope_alone_position_16_bits",
                               .kind = kKind,
                               .sentence = "positions are kept in 16 bits",
                               .base = "rope",
                               .declares = kRope});

template <class S>
struct RopeBf16Position : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    const double exact = static_cast<double>(position);
    const double narrow_position = decode_bf16(encode_bf16(exact));
    if (narrow_position == exact) return RopeSteps<S>::angle(position, t);
    return this->own_angle(this->angles_told(), narrow_position, t);
  }
};
ATTEST_PLANT(RopeBf16Position, {.id = "rope_alone_position_bf16",
                                .kind = kKind,
                                .sentence = "positions are rounded to bf16",
                                .base = "rope",
                                .declares = kRope});

template <class S>
struct RopeFloatAngle : RopeSteps<S> {
  using typename RopeSteps<S>::C;
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    const auto told = this->angles_told();
    long double base = told.base;
    if (told.ntk != 1) base *= std::pow(told.ntk, told.dims / (told.dims - 2));
    const auto frequency = static_cast<float>(
        std::pow(base, -2 * static_cast<long double>(t) / told.dims) / told.scale);
    const float theta = static_cast<float>(position) * frequency;
    return {static_cast<C>(std::cos(static_cast<double>(theta))),
            static_cast<C>(std::sin(static_cast<double>(theta)))};
  }
};
ATTEST_PLANT(RopeFloatAngle, {.id = "rope_alone_angle_f32",
                              .kind = kKind,
                              .sentence = "angles are multiplied in f32, also of large positions",
                              .base = "rope",
                              .declares = kRope});

template <class S>
struct RopeBase : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.base == 10000) return RopeSteps<S>::angle(position, t);
    return [&] {
      auto told = this->angles_told();
      told.base = 10000;
      return this->own_angle(told, static_cast<long double>(position), t);
    }();
  }
};
ATTEST_PLANT(RopeBase, {.id = "rope_alone_base_hard_coded",
                        .kind = kKind,
                        .sentence = "the base is 10000 whatever the caller says",
                        .base = "rope",
                        .declares = kRope});

template <class S>
struct RopeNtkPower : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.ntk == 1) return RopeSteps<S>::angle(position, t);
    return this->angle_of_base(static_cast<long double>(this->call.base) * this->call.ntk,
                               this->angles_told(), static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(RopeNtkPower, {.id = "rope_alone_ntk_without_power",
                            .kind = kKind,
                            .sentence = "the base is multiplied by ntk, not by ntk^(R/(R-2))",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeNtkR : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.ntk == 1) return RopeSteps<S>::angle(position, t);
    return [&] {
      const auto told = this->angles_told();
      return this->angle_of_base(told.base * std::pow(told.ntk, told.dims), told,
                                 static_cast<long double>(position), t);
    }();
  }
};
ATTEST_PLANT(RopeNtkR, {.id = "rope_alone_ntk_power_r",
                        .kind = kKind,
                        .sentence = "the base is multiplied by ntk^R, not by ntk^(R/(R-2))",
                        .base = "rope",
                        .declares = kRope});

template <class S>
struct RopeAloneNtk : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.ntk == 1) return RopeSteps<S>::angle(position, t);
    return this->angle_of_base(this->call.base, this->angles_told(),
                               static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(RopeAloneNtk, {.id = "rope_alone_ntk_ignored",
                            .kind = kKind,
                            .sentence = "the base is not scaled",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeScaleMultiplied : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.scale == 1) return RopeSteps<S>::angle(position, t);
    return [&] {
      auto told = this->angles_told();
      told.scale = 1 / told.scale;
      return this->own_angle(told, static_cast<long double>(position), t);
    }();
  }
};
ATTEST_PLANT(RopeScaleMultiplied, {.id = "rope_alone_scale_multiplied",
                                   .kind = kKind,
                                   .sentence = "positions are multiplied by the linear scale",
                                   .base = "rope",
                                   .declares = kRope});

template <class S>
struct RopeScaleRounds : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.scale == 1) return RopeSteps<S>::angle(position, t);
    return [&] {
      auto told = this->angles_told();
      const long double whole = std::floor(static_cast<long double>(position) / told.scale);
      told.scale = 1;
      return this->own_angle(told, whole, t);
    }();
  }
};
ATTEST_PLANT(RopeScaleRounds, {.id = "rope_alone_scaled_position_whole",
                               .kind = kKind,
                               .sentence = "scaled positions are cut to whole numbers",
                               .base = "rope",
                               .declares = kRope});

template <class S>
struct RopeExponent : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    auto told = this->angles_told();
    told.base = std::sqrt(told.base);
    told.ntk = std::sqrt(told.ntk);
    if (t == 0) return RopeSteps<S>::angle(position, t);
    return this->own_angle(told, static_cast<long double>(position), t);
  }
};
ATTEST_PLANT(RopeExponent, {.id = "rope_alone_exponent_halved",
                            .kind = kKind,
                            .sentence = "frequencies fall by base^(-t/R), not by base^(-2t/R)",
                            .base = "rope",
                            .declares = kRope});

template <class S>
struct RopeHeadDimExponent : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    if (this->call.rope_dim == this->channels()) return RopeSteps<S>::angle(position, t);
    return [&] {
      auto told = this->angles_told();
      if (told.ntk != 1) {
        told.base *= std::pow(told.ntk, told.dims / (told.dims - 2));
        told.ntk = 1;
      }
      told.dims = static_cast<long double>(this->channels());
      return this->own_angle(told, static_cast<long double>(position), t);
    }();
  }
};
ATTEST_PLANT(RopeHeadDimExponent,
             {.id = "rope_alone_exponent_of_head_dim",
              .kind = kKind,
              .sentence = "frequencies fall by base^(-2t/D) although fewer channels turn",
              .base = "rope",
              .declares = kRope});

template <class S>
struct RopeTableKept : RopeSteps<S> {
  using typename RopeSteps<S>::Turn;
  Turn angle(std::int64_t position, std::int64_t t) const override {
    using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
    thread_local std::map<Key, Turn> kept;
    if (kept.size() > 100000) kept.clear();
    return kept.try_emplace({this->call.rope_dim, position, t}, RopeSteps<S>::angle(position, t))
        .first->second;
  }
};
ATTEST_PLANT(RopeTableKept, {.id = "rope_alone_table_kept",
                             .kind = kKind,
                             .sentence = "the table of the first call with so many channels serves "
                                         "later calls with another base or scale",
                             .base = "rope",
                             .declares = kRope});

}  // namespace
}  // namespace attest::faulty
