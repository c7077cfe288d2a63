// SPDX-License-Identifier: Apache-2.0
// Faults of the contract: what was not declared is accepted and ignored, what was declared refused.
#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "contract";

/// Serves causal attention with equal heads and lengths, and lse; refuses all else.
constexpr const char* kPlain =
    "base=full,causal scale lse layout=any precision=mma_f32acc deterministic";

template <class S>
struct Plain : Stepwise<S> {
  void refuse() const override {
    const auto& asked = this->problem;
    if (asked.scale <= 0) throw Unsupported("a scale of 0 and below is not served");
    for (const DLTensor* tensor : {asked.q, asked.k, asked.v})
      for (int axis = 0; axis < 4; ++axis)
        if (tensor->shape[axis] == 0) throw Unsupported("tensors without elements are not served");
    for (int i = 0; i < kNumUses; ++i) {
      const auto use = static_cast<Use>(i);
      if (asks_for(asked, use) && use != Use::causal && use != Use::lse && !overlooks(use))
        throw Unsupported(std::string(name(use)) + " is not served");
    }
  }
  /// Uses whose test is missing.
  virtual bool overlooks(Use) const { return false; }
};
ATTEST_HONEST(Plain, {.id = "plain",
                      .kind = "honest declaration",
                      .sentence = "declares little and refuses all else",
                      .base = "plain",
                      .declares = kPlain});

/// Does not test for one feature, and goes on without it.
template <class S, Use kUse>
struct Overlooks : Plain<S> {
  bool overlooks(Use use) const override { return use == kUse; }
  void run() override {
    forget(this->problem);
    Stepwise<S>::run();
  }
  virtual void forget(attest_attention& asked) const = 0;
};

template <class S>
struct SoftcapOverlooked : Overlooks<S, Use::softcap> {
  void forget(attest_attention& asked) const override { asked.softcap = 0; }
};
ATTEST_PLANT(SoftcapOverlooked, {.id = "softcap_accepted_and_ignored",
                                 .kind = kKind,
                                 .sentence = "a softcap is not declared, not refused, not applied",
                                 .base = "plain",
                                 .declares = kPlain});

template <class S>
struct WindowOverlooked : Overlooks<S, Use::window> {
  void forget(attest_attention& asked) const override {
    asked.window_left = asked.window_right = -1;
  }
};
ATTEST_PLANT(WindowOverlooked, {.id = "window_accepted_and_ignored",
                                .kind = kKind,
                                .sentence = "a window is not declared, not refused, not applied",
                                .base = "plain",
                                .declares = kPlain});

template <class S>
struct MaskOverlooked : Overlooks<S, Use::mask> {
  void forget(attest_attention& asked) const override { asked.mask = nullptr; }
};
ATTEST_PLANT(MaskOverlooked, {.id = "mask_accepted_and_ignored",
                              .kind = kKind,
                              .sentence = "a mask is not declared, not refused, not applied",
                              .base = "plain",
                              .declares = kPlain});

template <class S>
struct BiasOverlooked : Overlooks<S, Use::bias> {
  void forget(attest_attention& asked) const override { asked.bias = nullptr; }
};
ATTEST_PLANT(BiasOverlooked, {.id = "bias_accepted_and_ignored",
                              .kind = kKind,
                              .sentence = "a bias is not declared, not refused, not applied",
                              .base = "plain",
                              .declares = kPlain});

template <class S>
struct SinkOverlooked : Overlooks<S, Use::sink> {
  void forget(attest_attention& asked) const override { asked.sink = nullptr; }
};
ATTEST_PLANT(SinkOverlooked, {.id = "sink_accepted_and_ignored",
                              .kind = kKind,
                              .sentence = "a sink is not declared, not refused, not applied",
                              .base = "plain",
                              .declares = kPlain});

template <class S>
struct DropoutOverlooked : Overlooks<S, Use::dropout> {
  void forget(attest_attention& asked) const override {
    asked.keep = nullptr;
    asked.dropout_p = 0;
  }
};
ATTEST_PLANT(DropoutOverlooked, {.id = "dropout_accepted_and_ignored",
                                 .kind = kKind,
                                 .sentence = "dropout is not declared, not refused, not applied",
                                 .base = "plain",
                                 .declares = kPlain});

template <class S>
struct LengthsOverlooked : Overlooks<S, Use::lengths_k> {
  void forget(attest_attention& asked) const override {
    asked.seqlens_k = asked.left_pad_k = nullptr;
  }
};
ATTEST_PLANT(LengthsOverlooked,
             {.id = "padding_accepted_and_ignored",
              .kind = kKind,
              .sentence = "lengths of the keys are not declared, not refused, not obeyed",
              .base = "plain",
              .declares = kPlain});

template <class S>
struct RopeOverlooked : Overlooks<S, Use::rope> {
  void forget(attest_attention& asked) const override { asked.rope = ATTEST_ROPE_NONE; }
};
ATTEST_PLANT(RopeOverlooked, {.id = "rope_accepted_and_ignored",
                              .kind = kKind,
                              .sentence = "RoPE is not declared, not refused, not applied",
                              .base = "plain",
                              .declares = kPlain});

template <class S>
struct AlibiOverlooked : Overlooks<S, Use::alibi> {
  void forget(attest_attention& asked) const override { asked.alibi = ATTEST_ALIBI_NONE; }
};
ATTEST_PLANT(AlibiOverlooked, {.id = "alibi_accepted_and_ignored",
                               .kind = kKind,
                               .sentence = "ALiBi is not declared, not refused, not applied",
                               .base = "plain",
                               .declares = kPlain});

template <class S>
struct DeclaredRefused : Stepwise<S> {
  void refuse() const override {
    if (this->sizes.v_dim > this->sizes.dim) throw Unsupported("v wider than k is not served");
  }
};
ATTEST_PLANT(DeclaredRefused, {.id = "declared_but_refused",
                               .kind = kKind,
                               .sentence = "v with more channels than k is declared, and refused"});

template <class S>
struct FailsAt63 : Stepwise<S> {
  void refuse() const override {
    if (this->sizes.kv_len % 64 == 63) throw std::runtime_error("a launch failed");
  }
};
ATTEST_PLANT(FailsAt63, {.id = "fails_at_63_keys",
                         .kind = kKind,
                         .sentence = "the call fails where kv_len is 63, 127, ..."});

}  // namespace
}  // namespace attest::faulty
