// SPDX-License-Identifier: Apache-2.0
// Faults that show at particular sizes alone.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "sizes";

/// q.k that does not look at all channels.
template <class S>
struct FewerChannels : Stepwise<S> {
  using typename Stepwise<S>::C;
  C dot(const C* a, const C* b, std::int64_t n) const override {
    return Stepwise<S>::dot(a, b, std::min(n, looked_at(n)));
  }
  virtual std::int64_t looked_at(std::int64_t n) const = 0;
};

template <class S>
struct HeadDim128 : FewerChannels<S> {
  std::int64_t looked_at(std::int64_t) const override { return 128; }
};
ATTEST_PLANT(HeadDim128, {.id = "head_dim_constant",
                          .kind = kKind,
                          .sentence = "head_dim is taken for 128 at most",
                          .reference = "triton-lang/triton#621"});

template <class S>
struct HeadDim64 : FewerChannels<S> {
  std::int64_t looked_at(std::int64_t) const override { return 64; }
};
ATTEST_PLANT(HeadDim64,
             {.id = "head_dim_64", .kind = kKind, .sentence = "head_dim is taken for 64 at most"});

template <class S>
struct HeadDimFloor8 : FewerChannels<S> {
  std::int64_t looked_at(std::int64_t n) const override { return n > 8 ? n / 8 * 8 : n; }
};
ATTEST_PLANT(HeadDimFloor8, {.id = "head_dim_multiple_of_8",
                             .kind = kKind,
                             .sentence = "channels after the last multiple of 8 are ignored"});

template <class S>
struct HeadDim33 : FewerChannels<S> {
  std::int64_t looked_at(std::int64_t n) const override { return n == 33 ? 32 : n; }
};
ATTEST_PLANT(HeadDim33, {.id = "head_dim_33",
                         .kind = kKind,
                         .sentence = "head_dim 33, and no other, loses its last channel"});

template <class S>
struct HeadDim16n15 : FewerChannels<S> {
  std::int64_t looked_at(std::int64_t n) const override {
    return n > 16 && n % 16 == 15 ? n - 1 : n;
  }
};
ATTEST_PLANT(HeadDim16n15, {.id = "head_dim_16n_minus_1",
                            .kind = kKind,
                            .sentence = "head_dim 31, 47, 63, ... lose their last channel"});

/// v with channels from another place.
template <class S>
struct OtherVChannels : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c) to[c] = to[source(c)];
  }
  virtual std::int64_t source(std::int64_t c) const = 0;
};

template <class S>
struct VHeadDim64 : OtherVChannels<S> {
  std::int64_t source(std::int64_t c) const override { return c % 64; }
};
ATTEST_PLANT(VHeadDim64, {.id = "v_head_dim_64",
                          .kind = kKind,
                          .sentence = "channels of v from 64 on are those from 0 again"});

template <class S>
struct DvFromDqk : OtherVChannels<S> {
  std::int64_t source(std::int64_t c) const override {
    return this->sizes.dim > 0 ? c % this->sizes.dim : c;
  }
};
ATTEST_PLANT(DvFromDqk, {.id = "dv_from_dqk",
                         .kind = kKind,
                         .sentence = "v is taken to have no more channels than k",
                         .reference = "Dao-AILab/flash-attention#2552"});

template <class S>
struct VOddLast : OtherVChannels<S> {
  std::int64_t source(std::int64_t c) const override {
    const bool last = c == this->sizes.v_dim - 1 && c > 0 && this->sizes.v_dim % 2 == 1;
    return last ? c - 1 : c;
  }
};
ATTEST_PLANT(VOddLast,
             {.id = "v_odd_last_channel",
              .kind = kKind,
              .sentence = "channels of v go in pairs; a last one alone is the one before"});

template <class S>
struct KvLen64 : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    const bool lost = q.sequence->keys() == 64 && k.position == 63;
    return !lost && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(KvLen64, {.id = "kv_len_64_loses_last",
                       .kind = kKind,
                       .sentence = "a sequence of exactly one block loses its last key"});

template <class S>
struct KvLenLong : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    const std::int64_t keys = q.sequence->keys();
    return !(keys > 128 && k.position >= keys / 8 * 8) && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(KvLenLong, {.id = "tail_lost_beyond_128",
                         .kind = kKind,
                         .sentence = "beyond 128 keys only whole groups of 8 are visited"});

}  // namespace
}  // namespace attest::faulty
