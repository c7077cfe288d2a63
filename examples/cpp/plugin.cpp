// SPDX-License-Identifier: Apache-2.0
#include <attest/plugin.hpp>
#include <cmath>
#include <vector>

struct Mine : attest::Kernel {
  void forward(const attest_attention& p, const attest::Context&) override {
    attest::accept_only(p, {attest::DType::f32}, {});  // all else is refused by name
    const attest::TensorView<const float> q(p.q), k(p.k), v(p.v);
    const attest::TensorView<float> o(p.o);
    attest::for_each_row(p, [&](auto b, auto h, auto i) {
      std::vector<double> w(k.extent(2));
      double max = -INFINITY, sum = 0;
      for (int j = 0; j < k.extent(2); ++j)
        for (int c = 0; c < k.extent(3); ++c) w[j] += p.scale * q(b, h, i, c) * k(b, h, j, c);
      for (double z : w) max = std::fmax(max, z);
      for (double& z : w) sum += z = std::exp(z - max);
      for (int c = 0; c < v.extent(3); ++c) {
        float& out = o(b, h, i, c) = 0;
        for (int j = 0; j < k.extent(2); ++j) out += float(w[j] / sum * v(b, h, j, c));
      }
    });
  }
};
ATTEST_PLUGIN(Mine, "example_cpp", "1", "dtype=f32 scale scale_nonpositive layout=any empty_dims");
