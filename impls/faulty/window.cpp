// SPDX-License-Identifier: Apache-2.0
// Faults of the sliding window and its global tokens.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "window";

/// A window of other bounds. change() edits them.
template <class S>
struct OtherWindow : EveryBlock<S> {
  void run() override {
    change(this->problem);
    Stepwise<S>::run();
  }
  virtual void change(attest_attention& asked) const = 0;
};

template <class S>
struct WindowExclusive : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_left > 0) --asked.window_left;
  }
};
ATTEST_PLANT(WindowExclusive, {.id = "window_exclusive",
                               .kind = kKind,
                               .sentence = "the left bound of the window is exclusive",
                               .reference = "huggingface/transformers#39408"});

template <class S>
struct WindowPlusOne : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_left >= 0 && asked.window_left < this->sizes.kv_len) ++asked.window_left;
  }
};
ATTEST_PLANT(WindowPlusOne, {.id = "window_plus_one",
                             .kind = kKind,
                             .sentence = "the window reaches one key further left",
                             .reference = "microsoft/onnxruntime#25927"});

template <class S>
struct WindowRightPlusOne : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_right >= 0 && asked.window_right < this->sizes.kv_len) ++asked.window_right;
  }
};
ATTEST_PLANT(WindowRightPlusOne, {.id = "window_right_plus_one",
                                  .kind = kKind,
                                  .sentence = "the window reaches one key further right"});

template <class S>
struct WindowLeftIgnored : OtherWindow<S> {
  void change(attest_attention& asked) const override { asked.window_left = -1; }
};
ATTEST_PLANT(WindowLeftIgnored, {.id = "window_left_ignored",
                                 .kind = kKind,
                                 .sentence = "the left bound of the window is ignored"});

template <class S>
struct WindowRightIgnored : OtherWindow<S> {
  void change(attest_attention& asked) const override { asked.window_right = -1; }
};
ATTEST_PLANT(WindowRightIgnored, {.id = "window_right_ignored",
                                  .kind = kKind,
                                  .sentence = "the right bound of the window is ignored"});

template <class S>
struct WindowSwapped : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    std::swap(asked.window_left, asked.window_right);
  }
};
ATTEST_PLANT(WindowSwapped, {.id = "window_swapped",
                             .kind = kKind,
                             .sentence = "the window's left and right bounds are swapped"});

template <class S>
struct WindowSymmetric : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_left >= 0 && asked.window_right >= 0) asked.window_right = asked.window_left;
  }
};
ATTEST_PLANT(WindowSymmetric, {.id = "window_symmetric",
                               .kind = kKind,
                               .sentence = "the left bound of a window serves for both sides"});

template <class S>
struct WindowZero : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_left == 0) asked.window_left = -1;
    if (asked.window_right == 0) asked.window_right = -1;
  }
};
ATTEST_PLANT(WindowZero,
             {.id = "window_zero", .kind = kKind, .sentence = "a bound of 0 is taken for none"});

template <class S>
struct WindowDroppedWhenCausal : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.base == ATTEST_BASE_CAUSAL) asked.window_left = asked.window_right = -1;
  }
};
ATTEST_PLANT(WindowDroppedWhenCausal, {.id = "window_dropped_when_causal",
                                       .kind = kKind,
                                       .sentence = "base=causal makes the window forgotten"});

template <class S>
struct WindowMakesCausal : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.base == ATTEST_BASE_FULL && asked.window_left >= 0 && asked.window_right < 0)
      asked.base = ATTEST_BASE_CAUSAL;
  }
};
ATTEST_PLANT(WindowMakesCausal, {.id = "window_makes_causal",
                                 .kind = kKind,
                                 .sentence = "a left window alone is taken for a causal one"});

template <class S>
struct WindowLongIgnored : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.window_left > 64) asked.window_left = -1;
  }
};
ATTEST_PLANT(WindowLongIgnored, {.id = "window_over_64_ignored",
                                 .kind = kKind,
                                 .sentence = "a left bound above 64 is taken for none"});

template <class S>
struct WindowSumOverflows : EveryBlock<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    const auto last = static_cast<std::int32_t>(q.position + this->problem.window_right);
    const bool hidden = this->problem.window_right >= 0 && k.position > last;
    return !hidden && Stepwise<S>::band_allows(q, k);
  }
};
ATTEST_PLANT(WindowSumOverflows,
             {.id = "window_sum_overflows",
              .kind = kKind,
              .sentence = "position + right bound is computed in 32 bits and wraps around"});

template <class S>
struct WindowIgnoresOffset : EveryBlock<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    Query unaligned = q;
    unaligned.position -= q.sequence->offset;
    return Stepwise<S>::band_allows(unaligned, k);
  }
};
ATTEST_PLANT(WindowIgnoresOffset,
             {.id = "window_ignores_offset",
              .kind = kKind,
              .sentence = "the window is laid around query rows, not query positions"});

template <class S>
struct WindowFirstSequenceOnly : EveryBlock<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    return q.sequence->index > 0 || Stepwise<S>::band_allows(q, k);
  }
};
ATTEST_PLANT(WindowFirstSequenceOnly, {.id = "window_first_sequence_only",
                                       .kind = kKind,
                                       .sentence = "only the first sequence has a window"});

template <class S>
struct WindowInBlocks : EveryBlock<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    if (this->problem.window_left < 0) return Stepwise<S>::band_allows(q, k);
    Query moved = q;  // the left edge of the window moves to the start of its block of 16
    const std::int64_t edge = q.position - this->problem.window_left;
    if (edge > 0 && k.position < edge) moved.position -= edge % 16;
    return Stepwise<S>::band_allows(moved, k);
  }
};
ATTEST_PLANT(WindowInBlocks,
             {.id = "window_in_blocks",
              .kind = kKind,
              .sentence = "the left bound is rounded down to a whole block of 16 keys"});

template <class S>
struct GlobalQueriesIgnored : Stepwise<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    const std::int64_t left = this->problem.window_left, right = this->problem.window_right;
    return k.position < this->problem.global_tokens ||
           ((left < 0 || q.position - k.position <= left) &&
            (right < 0 || k.position - q.position <= right));
  }
};
ATTEST_PLANT(GlobalQueriesIgnored,
             {.id = "global_queries_ignored",
              .kind = kKind,
              .sentence = "global keys are seen by all, but global queries do not see all"});

template <class S>
struct GlobalKeysIgnored : Stepwise<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    const std::int64_t left = this->problem.window_left, right = this->problem.window_right;
    const bool global = q.position >= 0 && q.position < this->problem.global_tokens;
    return global || ((left < 0 || q.position - k.position <= left) &&
                      (right < 0 || k.position - q.position <= right));
  }
};
ATTEST_PLANT(GlobalKeysIgnored,
             {.id = "global_keys_ignored",
              .kind = kKind,
              .sentence = "global queries see all, but global keys are not seen by all"});

template <class S>
struct GlobalPlusOne : OtherWindow<S> {
  void change(attest_attention& asked) const override {
    if (asked.global_tokens > 0) ++asked.global_tokens;
  }
};
ATTEST_PLANT(GlobalPlusOne, {.id = "global_plus_one",
                             .kind = kKind,
                             .sentence = "there is one global token more (<= for <)"});

template <class S>
struct GlobalOverridesCausal : EveryBlock<S> {
  bool base_allows(const Query& q, const Key& k) const override {
    const bool global = q.position >= 0 && q.position < this->problem.global_tokens;
    return global || Stepwise<S>::base_allows(q, k);
  }
};
ATTEST_PLANT(GlobalOverridesCausal,
             {.id = "global_overrides_causal",
              .kind = kKind,
              .sentence = "a global query sees its future in spite of base=causal"});

template <class S>
struct GlobalNegativeQueries : Stepwise<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    return (q.position < 0 && this->problem.global_tokens > 0) || Stepwise<S>::band_allows(q, k);
  }
};
ATTEST_PLANT(GlobalNegativeQueries, {.id = "global_negative_queries",
                                     .kind = kKind,
                                     .sentence = "queries at negative positions count as global"});

}  // namespace
}  // namespace attest::faulty
