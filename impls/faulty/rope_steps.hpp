// SPDX-License-Identifier: Apache-2.0
// A rotary embedding by itself in single steps, each of which a fault can do otherwise.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "impls/faulty/catalogue.hpp"
#include "impls/storage.hpp"

namespace attest::faulty {

/// What the rotary embedding alone declares.
inline constexpr const char* kRope =
    "forward=none component=rope,rope_inverse features=all precision=f32 deterministic "
    "batch_invariant thread_invariant";

template <class S>
class RopeSteps {
 public:
  using StorageType = S;
  using C = Compute<S>;
  virtual ~RopeSteps() = default;
  static std::uint64_t workspace_bytes(const attest_attention&) { return 0; }

  void serve_rope(const RopeCall& rope, const Context&) {
    call = rope;
    run();
  }

 protected:
  struct Row {
    std::int64_t b, h, i;
  };
  struct Turn {
    C cos, sin;
  };

  std::int64_t heads() const { return call.x->shape[1]; }
  std::int64_t rows() const { return call.x->shape[2]; }
  std::int64_t channels() const { return call.x->shape[3]; }
  std::int64_t given_position(std::int64_t b, std::int64_t i) const {
    return TensorView<const std::int32_t>(call.positions)(b, i);
  }

  virtual void run() {
    for (std::int64_t b = 0; b < call.x->shape[0]; ++b)
      for (std::int64_t h = 0; h < heads(); ++h)
        for (std::int64_t i = 0; i < rows(); ++i) turn_row({b, h, i});
  }
  virtual std::int64_t position(const Row& row) const { return given_position(row.b, row.i); }
  virtual bool turns(const Row&) const { return true; }
  virtual std::int64_t rope_dim() const { return call.rope_dim; }
  virtual std::int64_t pairs() const { return rope_dim() / 2; }
  virtual std::int64_t first_of(std::int64_t t) const {
    return call.pairing == ATTEST_ROPE_INTERLEAVED ? 2 * t : t;
  }
  virtual std::int64_t second_of(std::int64_t t) const {
    return call.pairing == ATTEST_ROPE_INTERLEAVED ? 2 * t + 1 : t + rope_dim() / 2;
  }
  virtual bool inverse() const { return call.inverse; }
  /// cos and sin of pair t; the direction is not in them.
  virtual Turn angle(std::int64_t position, std::int64_t t) const {
    const std::int64_t r = position - call.rope_position;
    return {TensorView<const C>(call.cos)(r, t), TensorView<const C>(call.sin)(r, t)};
  }
  virtual void turn(Turn by, C& x, C& y) const {
    const C turned = x * by.cos - y * by.sin;
    y = x * by.sin + y * by.cos;
    x = turned;
  }
  virtual S stored(C value) const { return narrow<S>(value); }
  virtual void pass(const S& from, S& to) const { to = from; }

  virtual S* output(const Row& row) const { return output_row<S>(call.y, row.b, row.h, row.i); }
  virtual std::int64_t output_stride() const { return call.y->strides[3]; }

  virtual void turn_row(const Row& row) {
    const S* const from = row_of<S>(call.x, row.b, row.h, row.i);
    S* const to = output(row);
    const std::int64_t in = call.x->strides[3], out = output_stride();
    std::vector<C> values(static_cast<std::size_t>(channels()));
    load_row(from, in, channels(), values.data());
    std::vector<char> turned(values.size(), 0);
    for (std::int64_t t = 0; t < pairs() && turns(row); ++t) {
      const auto first = static_cast<std::size_t>(first_of(t)),
                 second = static_cast<std::size_t>(second_of(t));
      Turn by = angle(position(row), t);
      if (inverse()) by.sin = -by.sin;
      turn(by, values[first], values[second]);
      turned[first] = turned[second] = 1;
    }
    for (std::size_t c = 0; c < values.size(); ++c) {
      const auto channel = static_cast<std::int64_t>(c);
      if (turned[c])
        to[channel * out] = stored(values[c]);
      else
        pass(from[channel * in], to[channel * out]);
    }
  }

  /// theta_t(position) from the scalars, as far as long double goes.
  struct Angles {
    long double base, scale, ntk, dims;
  };
  Angles angles_told() const {
    return {call.base, call.scale, call.ntk, static_cast<long double>(call.rope_dim)};
  }
  static Turn own_angle(const Angles& a, long double position, std::int64_t t) {
    long double base = a.base;
    if (a.ntk != 1) base *= std::pow(a.ntk, a.dims / (a.dims - 2));
    return angle_of_base(base, a, position, t);
  }
  static Turn angle_of_base(long double base, const Angles& a, long double position,
                            std::int64_t t) {
    const long double theta =
        position * std::pow(base, -2 * static_cast<long double>(t) / a.dims) / a.scale;
    return {static_cast<C>(std::cos(theta)), static_cast<C>(std::sin(theta))};
  }

  RopeCall call;
};

}  // namespace attest::faulty
