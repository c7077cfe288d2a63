// SPDX-License-Identifier: Apache-2.0
// Faults of ALiBi and RoPE.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kAlibi = "alibi";
constexpr const char* kRope = "rope";

template <class S>
struct AlibiAnchorByEntryPoint : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    if (this->problem.alibi == ATTEST_ALIBI_ABSOLUTE && this->problem.base == ATTEST_BASE_CAUSAL)
      return this->slope(q) * static_cast<C>(k.position);
    return Stepwise<S>::alibi(q, k);
  }
};
ATTEST_PLANT(AlibiAnchorByEntryPoint,
             {.id = "alibi_anchor_by_entry_point",
              .kind = kAlibi,
              .sentence = "causal calls anchor ALiBi at key 0, others at the query",
              .reference = "Dao-AILab/flash-attention#907"});

template <class S>
struct AlibiSignedForAbsolute : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    if (this->problem.alibi == ATTEST_ALIBI_ABSOLUTE)
      return this->slope(q) * static_cast<C>(k.position - q.position);
    return Stepwise<S>::alibi(q, k);
  }
};
ATTEST_PLANT(AlibiSignedForAbsolute,
             {.id = "alibi_signed_for_absolute",
              .kind = kAlibi,
              .sentence = "future keys gain by their distance instead of losing"});

template <class S>
struct AlibiAbsoluteForSigned : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    if (this->problem.alibi == ATTEST_ALIBI_SIGNED)
      return -this->slope(q) * static_cast<C>(std::abs(k.position - q.position));
    return Stepwise<S>::alibi(q, k);
  }
};
ATTEST_PLANT(AlibiAbsoluteForSigned, {.id = "alibi_absolute_for_signed",
                                      .kind = kAlibi,
                                      .sentence = "signed ALiBi is done as absolute"});

template <class S>
struct AlibiSign : Stepwise<S> {
  using typename Stepwise<S>::C;
  C slope(const Query& q) const override { return -Stepwise<S>::slope(q); }
};
ATTEST_PLANT(AlibiSign, {.id = "alibi_sign_flipped",
                         .kind = kAlibi,
                         .sentence = "ALiBi favours what is far away"});

template <class S>
struct AlibiNoOffset : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    Query unaligned = q;
    unaligned.position -= q.sequence->offset;
    return Stepwise<S>::alibi(unaligned, k);
  }
};
ATTEST_PLANT(AlibiNoOffset, {.id = "alibi_ignores_offset",
                             .kind = kAlibi,
                             .sentence = "distances are taken from query rows, not positions"});

template <class S>
struct AlibiPlainPower : Stepwise<S> {
  using typename Stepwise<S>::C;
  C slope(const Query& q) const override {
    return static_cast<C>(
        std::exp2(-8.0 * static_cast<double>(q.h + 1) / static_cast<double>(this->sizes.heads)));
  }
};
ATTEST_PLANT(AlibiPlainPower, {.id = "alibi_slopes_plain_power",
                               .kind = kAlibi,
                               .sentence = "slopes are 2^(-8(h+1)/H), whatever is given"});

template <class S>
struct AlibiSlopesNonPow2 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C slope(const Query& q) const override {
    std::int64_t n = 1;
    while (2 * n <= this->sizes.heads) n *= 2;
    Query at = q;
    at.h %= n;  // the heads beyond the last power of two begin anew
    return Stepwise<S>::slope(at);
  }
};
ATTEST_PLANT(AlibiSlopesNonPow2,
             {.id = "alibi_slopes_non_pow2",
              .kind = kAlibi,
              .sentence = "heads beyond a power of two take the first heads' slopes",
              .reference = "ml-explore/mlx#3071"});

template <class S>
struct AlibiSlopeOfKvHead : Stepwise<S> {
  using typename Stepwise<S>::C;
  C slope(const Query& q) const override {
    Query at = q;
    at.h /= this->sizes.group;
    return Stepwise<S>::slope(at);
  }
};
ATTEST_PLANT(AlibiSlopeOfKvHead, {.id = "alibi_slope_of_kv_head",
                                  .kind = kAlibi,
                                  .sentence = "slopes are read by key/value head"});

template <class S>
struct AlibiSlopeOfSequence0 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C slope(const Query& q) const override {
    Query at = q;
    at.b = 0;
    return Stepwise<S>::slope(at);
  }
};
ATTEST_PLANT(AlibiSlopeOfSequence0, {.id = "alibi_slope_of_sequence_0",
                                     .kind = kAlibi,
                                     .sentence = "all sequences take the slopes of the first"});

template <class S>
struct AlibiOutsideSoftcap : Stepwise<S> {
  void run() override {
    this->problem.alibi_inside_softcap = 0;
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(AlibiOutsideSoftcap, {.id = "alibi_never_inside_softcap",
                                   .kind = kAlibi,
                                   .sentence = "ALiBi is added after the softcap in any case"});

template <class S>
struct AlibiDistanceBf16 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    Query at = q;  // the key's distance through bf16: wrong from 257 on
    const auto distance = static_cast<double>(k.position - q.position);
    at.position = k.position - static_cast<std::int64_t>(round_to(DType::bf16, distance));
    return Stepwise<S>::alibi(at, k);
  }
};
ATTEST_PLANT(AlibiDistanceBf16, {.id = "alibi_distance_bf16",
                                 .kind = kAlibi,
                                 .sentence = "distances are kept in bf16, exact to 256"});

template <class S>
struct AlibiFutureClamped : Stepwise<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    if (this->problem.alibi == ATTEST_ALIBI_SIGNED && k.position > q.position) return 0;
    return Stepwise<S>::alibi(q, k);
  }
};
ATTEST_PLANT(AlibiFutureClamped, {.id = "alibi_future_clamped",
                                  .kind = kAlibi,
                                  .sentence = "future keys have no ALiBi"});

// --- RoPE
// -----------------------------------------------------------------------------------------

template <class S>
struct RopeOffsetZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query unaligned = q;
    unaligned.position -= q.sequence->offset;
    Stepwise<S>::load_query(unaligned, to);
  }
};
ATTEST_PLANT(RopeOffsetZero, {.id = "rope_offset_zero_in_decode",
                              .kind = kRope,
                              .sentence = "queries are rotated by their row, not their position"});

template <class S>
struct RopeQueriesOnly : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_key(at, g, {k.row, 0}, to);
  }
};
ATTEST_PLANT(RopeQueriesOnly, {.id = "rope_queries_only",
                               .kind = kRope,
                               .sentence = "keys are all rotated as if at position 0"});

template <class S>
struct RopePairing : Stepwise<S> {
  void run() override {
    if (this->problem.rope)
      this->problem.rope = ATTEST_ROPE_INTERLEAVED + ATTEST_ROPE_HALF - this->problem.rope;
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(RopePairing, {.id = "rope_pairing",
                           .kind = kRope,
                           .sentence = "half pairs are done as interleaved and the reverse"});

template <class S>
struct RopeSign : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    if (!this->problem.rope) return Stepwise<S>::load_query(q, to);
    // Rotated back twice as far: by the negative angle, with the key's by the positive one.
    load_row(row_of<S>(this->problem.q, q.b, q.h, q.row), this->problem.q->strides[3],
             this->sizes.dim, to);
    backwards(to, q.position);
  }
  void backwards(C* row, std::int64_t position) const {
    const bool interleaved = this->problem.rope == ATTEST_ROPE_INTERLEAVED;
    const std::int64_t half = this->problem.rope_dim / 2;
    for (std::int64_t t = 0; t < half; ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      C& x = row[interleaved ? 2 * t : t];
      C& y = row[interleaved ? 2 * t + 1 : t + half];
      const C before = x;
      x = before * cosine + y * sine;
      y = y * cosine - before * sine;
    }
  }
};
ATTEST_PLANT(RopeSign, {.id = "rope_query_sign",
                        .kind = kRope,
                        .sentence = "queries are rotated backwards, keys forwards"});

template <class S>
struct RopePartialIgnored : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotate(C* row, std::int64_t position) const override {
    Stepwise<S>::rotate(row, position);
    // Channels beyond rope_dim are rotated too, by the angles of the first.
    const std::int64_t left = this->sizes.dim - this->problem.rope_dim;
    for (std::int64_t t = 0; 2 * t + 1 < std::min(left, this->problem.rope_dim); ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      C* const pair = row + this->problem.rope_dim + 2 * t;
      const C before = pair[0];
      pair[0] = before * cosine - pair[1] * sine;
      pair[1] = before * sine + pair[1] * cosine;
    }
  }
};
ATTEST_PLANT(RopePartialIgnored, {.id = "rope_partial_ignored",
                                  .kind = kRope,
                                  .sentence = "channels beyond rope_dim are rotated too",
                                  .reference = "vllm-project/vllm#43676"});

template <class S>
struct RopePartialHalf : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotate(C* row, std::int64_t position) const override {
    const std::int64_t half = this->problem.rope_dim / 2, partner = this->sizes.dim / 2;
    if (this->problem.rope != ATTEST_ROPE_HALF || partner < half)
      return Stepwise<S>::rotate(row, position);
    for (std::int64_t t = 0; t < half; ++t) {
      C cosine, sine;
      this->rotation(position, t, cosine, sine);
      const C x = row[t], y = row[t + partner];
      row[t] = x * cosine - y * sine;
      row[t + partner] = x * sine + y * cosine;
    }
  }
};
ATTEST_PLANT(RopePartialHalf,
             {.id = "rope_partial_half_of_head_dim",
              .kind = kRope,
              .sentence = "half pairs are head_dim/2 apart where only rope_dim is rotated"});

template <class S>
struct RopeRotatesV : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    if (this->problem.rope && this->sizes.v_dim >= this->problem.rope_dim)
      this->rotate(to, k.position);
  }
};
ATTEST_PLANT(RopeRotatesV,
             {.id = "rope_rotates_v", .kind = kRope, .sentence = "values are rotated too"});

/// Angles computed by the kernel, from other numbers than those given.
template <class S>
struct OwnAngles : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const override {
    if (base_of() == this->problem.rope_base && ntk() == this->problem.rope_ntk &&
        linear() == this->problem.rope_scale &&
        at(static_cast<double>(position)) == static_cast<double>(position))
      return Stepwise<S>::rotation(position, t, cosine, sine);
    const auto dims = static_cast<double>(this->problem.rope_dim);
    const double exponent = dims > 2 ? dims / (dims - 2) : 0;
    const double base = base_of() * std::pow(ntk(), exponent);
    const double angle = at(static_cast<double>(position)) / linear() *
                         std::pow(base, -2 * static_cast<double>(t) / dims);
    cosine = static_cast<C>(std::cos(angle));
    sine = static_cast<C>(std::sin(angle));
  }
  virtual double base_of() const { return this->problem.rope_base; }
  virtual double ntk() const { return this->problem.rope_ntk; }
  virtual double linear() const { return this->problem.rope_scale; }
  virtual double at(double position) const { return position; }
};

template <class S>
struct RopeLinearIgnored : OwnAngles<S> {
  double linear() const override { return 1; }
};
ATTEST_PLANT(RopeLinearIgnored, {.id = "rope_linear_ignored",
                                 .kind = kRope,
                                 .sentence = "linear position scaling is ignored"});

template <class S>
struct RopeNtkIgnored : OwnAngles<S> {
  double ntk() const override { return 1; }
};
ATTEST_PLANT(RopeNtkIgnored,
             {.id = "rope_ntk_ignored", .kind = kRope, .sentence = "NTK scaling is ignored"});

template <class S>
struct RopeBaseFixed : OwnAngles<S> {
  double base_of() const override { return 10000; }
};
ATTEST_PLANT(RopeBaseFixed,
             {.id = "rope_base_fixed", .kind = kRope, .sentence = "the base is 10000 in any case"});

template <class S>
struct RopePositionBf16 : OwnAngles<S> {
  double at(double position) const override { return round_to(DType::bf16, position); }
};
ATTEST_PLANT(RopePositionBf16, {.id = "rope_position_bf16",
                                .kind = kRope,
                                .sentence = "positions are kept in bf16, exact to 256"});

template <class S>
struct RopeTableFromRow0 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const override {
    Stepwise<S>::rotation(position + this->problem.rope_position, t, cosine, sine);
  }
};
ATTEST_PLANT(RopeTableFromRow0,
             {.id = "rope_table_from_row_0",
              .kind = kRope,
              .sentence = "row r of the tables is taken for position r, whatever rope_position",
              .dtypes = kAllTypes});

template <class S>
struct RopeTableTooShort : Stepwise<S> {
  using typename Stepwise<S>::C;
  void rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const override {
    Stepwise<S>::rotation(std::min<std::int64_t>(position, 511), t, cosine, sine);
  }
};
ATTEST_PLANT(RopeTableTooShort, {.id = "rope_table_too_short",
                                 .kind = kRope,
                                 .sentence = "positions from 512 on are rotated as 511"});

template <class S>
struct RopeIgnoresLeftPad : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_key(at, g, {k.row, k.row}, to);
  }
};
ATTEST_PLANT(RopeIgnoresLeftPad,
             {.id = "rope_positions_from_row_0",
              .kind = kRope,
              .sentence = "keys are rotated by their row, pad and other segments included"});

}  // namespace
}  // namespace attest::faulty
