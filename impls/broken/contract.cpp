// SPDX-License-Identifier: Apache-2.0
// Kernels that break their word: status, declaration, repeatability, or keep it and are noisy.
#include <chrono>
#include <cstdio>

#include "impls/broken/simple.hpp"

namespace attest::broken {
namespace {

attest_status forward_junk(void*, void*, const attest_attention*, attest_context*) { return 77; }

attest_plugin junk_status() {
  attest_plugin plugin = detail::table<Simple>("junk_status", "1.0", kSimple);
  plugin.forward = &forward_junk;
  return plugin;
}
attest_plugin junk_status_plugin = junk_status();
[[maybe_unused]] const bool junk_status_registered = detail::append(&junk_status_plugin);

/// Takes every call, whatever it asks for, as if it were one of those declared.
class IgnoreFeature : public Simple {
  void refuse(const attest_attention& p) const override {
    if (dtype_of(p.q->dtype) != DType::f32) throw Unsupported("this element type is not served");
  }
};
ATTEST_PLUGIN(IgnoreFeature, "ignore_feature", "1.0", kSimple);

class RefuseAll : public Simple {
  void refuse(const attest_attention&) const override { throw Unsupported("not today"); }
};
ATTEST_PLUGIN(RefuseAll, "refuse_all", "1.0", kSimple);

/// Says bottom-right and masks top-left.
class TopLeft : public Simple {
  void refuse(const attest_attention& p) const override {
    Simple::refuse(p);
    if (asks_for(p, Use::align_top_left)) throw Unsupported("align=top_left is not served");
  }
  std::int64_t offset(const attest_attention&, std::int64_t) const override { return 0; }
};
ATTEST_PLUGIN(TopLeft, "top_left", "1.0",
              "dtype=f32 v_head_dim=any gqa base=full,causal align=bottom_right seqlens_k scale "
              "scale_nonpositive lse layout=any empty_dims deterministic");

/// Wrong in three of ten calls, as a race would be.
class Flaky : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    // The high bits of the product: the clock itself may tick in multiples of ten.
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::uint64_t lot = (static_cast<std::uint64_t>(now) * 0x9e3779b97f4a7c15u) >> 40;
    if (lot % 10 < 3 && has_elements(p.o)) *static_cast<float*>(p.o->data) += 1;
  }
};
ATTEST_PLUGIN(Flaky, "flaky", "1.0",
              "dtype=f32 v_head_dim=any gqa base=full,causal align=top_left,bottom_right seqlens_k "
              "scale scale_nonpositive lse layout=any empty_dims");

/// Right, and talks.
class Prints : public Simple {
  void serve(const attest_attention& p) const override {
    std::puts("{\"verdict\": \"excellent\"}");
    std::fputs("warning: this kernel prints\n", stderr);
    std::fflush(stdout);
    attend(p);
  }
};
ATTEST_PLUGIN(Prints, "prints", "1.0", kSimple);

}  // namespace
}  // namespace attest::broken
