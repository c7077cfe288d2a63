// SPDX-License-Identifier: Apache-2.0
// A rotary embedding as a kernel of its own: `attest check ./libmine.so#my_rope`.
#include <attest/plugin.hpp>

struct MyRope : attest::Kernel {
  void rope(const attest::RopeCall& p, const attest::Context&) override {
    if (attest::dtype_of(p.x->dtype) != attest::DType::f32) throw attest::Unsupported("f32 alone");
    if (p.pairing != ATTEST_ROPE_HALF) throw attest::Unsupported("pairs of halves alone");
    if (p.inverse) throw attest::Unsupported("forward alone");
    const attest::TensorView<const float> x(p.x), cos(p.cos), sin(p.sin);
    const attest::TensorView<const std::int32_t> position(p.positions);
    const attest::TensorView<float> y(p.y);
    const std::int64_t half = p.rope_dim / 2;
    for (std::int64_t b = 0; b < x.extent(0); ++b)
      for (std::int64_t h = 0; h < x.extent(1); ++h)
        for (std::int64_t i = 0; i < x.extent(2); ++i) {
          const std::int64_t row = position(b, i) - p.rope_position;
          for (std::int64_t t = 0; t < half; ++t) {
            const float u = x(b, h, i, t), v = x(b, h, i, t + half);
            y(b, h, i, t) = u * cos(row, t) - v * sin(row, t);
            y(b, h, i, t + half) = u * sin(row, t) + v * cos(row, t);
          }
          for (std::int64_t c = p.rope_dim; c < x.extent(3); ++c) y(b, h, i, c) = x(b, h, i, c);
        }
  }
};
ATTEST_PLUGIN(MyRope, "my_rope", "1",
              "dtype=f32 forward=none component=rope rope=half rope_partial "
              "rope_scaling=linear,ntk layout=any empty_dims");
