// SPDX-License-Identifier: Apache-2.0
// Kernels that touch what they must not, or leave what they must write.
#include "impls/broken/simple.hpp"

namespace attest::broken {
namespace {

class ReadPastK : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    if (!has_elements(p.k)) return;
    [[maybe_unused]] const float unused = static_cast<const volatile float*>(p.k->data)[span(p.k)];
  }
};
ATTEST_PLUGIN(ReadPastK, "read_past_k", "1.0", kSimple);

class WriteBeforeO : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    if (has_elements(p.o)) static_cast<volatile float*>(p.o->data)[-1] = 0;
  }
};
ATTEST_PLUGIN(WriteBeforeO, "write_before_o", "1.0", kSimple);

class SkipElement : public Simple {
  void serve(const attest_attention& p) const override {
    const bool any = has_elements(p.o);
    float* const last = static_cast<float*>(p.o->data) + (any ? span(p.o) - 1 : 0);
    std::uint32_t before = 0;
    if (any) std::memcpy(&before, last, sizeof before);
    attend(p);
    if (any) std::memcpy(last, &before, sizeof before);
  }
};
ATTEST_PLUGIN(SkipElement, "skip_element", "1.0", kSimple);

class ModifyQ : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    if (has_elements(p.q)) *static_cast<std::uint32_t*>(p.q->data) ^= 1;
  }
};
ATTEST_PLUGIN(ModifyQ, "modify_q", "1.0", kSimple);

/// Gives the last row of v weight 0 also where it is padding: 0 * NaN.
class LeakNan : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    const TensorView<const float> v(p.v);
    const TensorView<float> o(p.o);
    for_each_row(p, [&](auto b, auto h, auto i) {
      for (std::int64_t c = 0; c < o.extent(3) && keys_of(p, b) < v.extent(2); ++c)
        o(b, h, i, c) += 0 * v(b, group_of(p, h), v.extent(2) - 1, c);
    });
  }
};
ATTEST_PLUGIN(LeakNan, "leak_nan", "1.0", kSimple);

class SwallowNan : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    const TensorView<float> o(p.o);
    for_each_row(p, [&](auto b, auto h, auto i) {
      for (std::int64_t c = 0; c < o.extent(3); ++c)
        if (std::isnan(o(b, h, i, c))) o(b, h, i, c) = 0;
    });
  }
};
ATTEST_PLUGIN(SwallowNan, "swallow_nan", "1.0", kSimple);

}  // namespace
}  // namespace attest::broken
