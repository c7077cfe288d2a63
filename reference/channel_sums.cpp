// SPDX-License-Identifier: Apache-2.0
#include "reference/channel_sums.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/channel_sums.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Below foreach_target.h, which sets the target that this is compiled for.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<double>;
using V = hn::Vec<Tag>;

/// The channels of one block, and what of them the loops over keys need.
struct Block {
  const Arithmetic& arithmetic;
  const RowScores& row;
  const RowTerms& terms;
  const Head& head;
  std::size_t c;
};

/// Sums over all keys in ascending order. kRounding: P is rounded before P.V (or multiplied by the
/// dropout factor). kAlibi: the slope is one more common factor.
template <int kVectors, bool kRounding, bool kAlibi>
HWY_INLINE void SumKeys(const Block& block, ChannelSums& sums) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const RowTerms& terms = block.terms;
  const PrecisionProfile& profile = block.arithmetic.profile;
  V o[kVectors], lost_below[kVectors], spread[kVectors], reach[kVectors], distance[kVectors];
  V along_scale[kVectors], along_alibi[kVectors], noise[kVectors], rounding[kVectors];
  V rounding_variance[kVectors], num_small[kVectors], small[kVectors], abs_small[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    const std::size_t at = block.c + static_cast<std::size_t>(k) * lanes;
    o[k] = hn::LoadU(d, sums.o.data() + at);
    // Nothing is small where everything is 0, and nothing is lost where a truncating accumulator
    // loses more than the addend.
    const V limit =
        hn::Mul(hn::Set(d, 2 * block.arithmetic.u), hn::LoadU(d, sums.abs_sum.data() + at));
    const auto never = hn::Eq(limit, hn::Zero(d));
    lost_below[k] = block.arithmetic.worst_case ? hn::Set(d, -1.0)
                                                : hn::IfThenElse(never, hn::Set(d, -1.0), limit);
    spread[k] = reach[k] = distance[k] = along_scale[k] = along_alibi[k] = noise[k] = hn::Zero(d);
    rounding[k] = rounding_variance[k] = num_small[k] = small[k] = abs_small[k] = hn::Zero(d);
  }
  // The rounding of P meets v - o where l is summed from rounded P, v elsewhere; the mixed bound
  // takes the larger unless P is normalised before it is rounded.
  const V shifted = hn::Set(d, profile.l_from_rounded ? 1.0 : 0.0);
  const V either = hn::Set(d, profile.p_normalised ? 0.0 : 1.0);

  for (std::size_t x = 0; x < block.row.n; ++x) {
    const double* v = block.head.v_row(block.row.value[x]) + block.c;
    const V p = hn::Set(d, block.row.p[x]), p_spread = hn::Set(d, terms.spread[x]);
    const V p_noise = hn::Set(d, terms.lone_noise[x]), p_scale = hn::Set(d, terms.along_scale[x]);
    V weighted[kVectors];
    auto any_small = hn::Lt(hn::Zero(d), hn::Zero(d));
    for (int k = 0; k < kVectors; ++k) {
      const V value = hn::LoadU(d, v + static_cast<std::size_t>(k) * lanes);
      const V apart = hn::Sub(value, o[k]), abs_apart = hn::Abs(apart);
      spread[k] = hn::MulAdd(p_spread, abs_apart, spread[k]);
      reach[k] = hn::Max(reach[k], abs_apart);
      distance[k] = hn::Add(distance[k], abs_apart);
      along_scale[k] = hn::MulAdd(p_scale, apart, along_scale[k]);
      const V moved = hn::Mul(p_noise, apart);
      noise[k] = hn::MulAdd(moved, moved, noise[k]);
      if (kAlibi)
        along_alibi[k] = hn::MulAdd(hn::Set(d, terms.along_alibi[x]), apart, along_alibi[k]);
      if (kRounding) {
        const V largest = hn::Max(hn::Abs(value), hn::Mul(either, abs_apart));
        rounding[k] = hn::MulAdd(hn::Set(d, terms.eps[x]), largest, rounding[k]);
        const V rounded =
            hn::Mul(hn::Set(d, terms.lone_eps[x]), hn::NegMulAdd(shifted, o[k], value));
        rounding_variance[k] = hn::MulAdd(rounded, rounded, rounding_variance[k]);
      }
      weighted[k] = hn::Mul(p, value);
      any_small = hn::Or(any_small, hn::Le(hn::Abs(weighted[k]), lost_below[k]));
    }
    if (HWY_LIKELY(hn::AllFalse(d, any_small))) continue;
    for (int k = 0; k < kVectors; ++k) {
      const auto lost = hn::Le(hn::Abs(weighted[k]), lost_below[k]);
      num_small[k] = hn::Add(num_small[k], hn::IfThenElseZero(lost, hn::Set(d, 1.0)));
      small[k] = hn::Add(small[k], hn::IfThenElseZero(lost, weighted[k]));
      abs_small[k] = hn::Add(abs_small[k], hn::IfThenElseZero(lost, hn::Abs(weighted[k])));
    }
  }
  for (int k = 0; k < kVectors; ++k) {
    const std::size_t at = block.c + static_cast<std::size_t>(k) * lanes;
    hn::StoreU(spread[k], d, sums.spread.data() + at);
    hn::StoreU(reach[k], d, sums.reach.data() + at);
    hn::StoreU(distance[k], d, sums.distance.data() + at);
    hn::StoreU(along_scale[k], d, sums.along_scale.data() + at);
    hn::StoreU(along_alibi[k], d, sums.along_alibi.data() + at);
    hn::StoreU(noise[k], d, sums.noise_variance.data() + at);
    hn::StoreU(rounding[k], d, sums.rounding.data() + at);
    hn::StoreU(rounding_variance[k], d, sums.rounding_variance.data() + at);
    hn::StoreU(num_small[k], d, sums.num_small.data() + at);
    hn::StoreU(small[k], d, sums.small.data() + at);
    hn::StoreU(abs_small[k], d, sums.abs_small.data() + at);
  }
}

/// Adds sum over groups of (sum over the group of weight (x - shift o))^2.
HWY_INLINE void AddGroups(const Block& block, const GroupList& groups, const Buffer<double>& weight,
                          double shift, const double* o, double* variance) {
  const Tag d;
  const V center = hn::Mul(hn::Set(d, shift), hn::LoadU(d, o + block.c));
  V total = hn::LoadU(d, variance + block.c);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < groups.count; ++i) {
    const auto end = static_cast<std::size_t>(groups.end[i]);
    V sum = hn::Zero(d);
    for (; begin < end; ++begin) {
      const auto x = static_cast<std::size_t>(groups.member[begin]);
      const V value = hn::LoadU(d, block.head.v_row(block.row.value[x]) + block.c);
      sum = hn::MulAdd(hn::Set(d, weight[x]), hn::Sub(value, center), sum);
    }
    total = hn::MulAdd(sum, sum, total);
  }
  hn::StoreU(total, d, variance + block.c);
}

template <int kVectors>
HWY_INLINE void SumBlock(const Block& block, ChannelSums& sums) {
  const bool rounding = block.arithmetic.profile.u_p > 0 || block.arithmetic.has_dropout;
  const bool alibi = block.arithmetic.has_alibi;
  if (rounding)
    alibi ? SumKeys<kVectors, true, true>(block, sums)
          : SumKeys<kVectors, true, false>(block, sums);
  else
    alibi ? SumKeys<kVectors, false, true>(block, sums)
          : SumKeys<kVectors, false, false>(block, sums);
}

void ChannelSumsImpl(const Arithmetic& arithmetic, const RowScores& row, const RowTerms& terms,
                     const Groups& groups, const Head& head, ChannelSums& sums) {
  const std::size_t lanes = hn::Lanes(Tag());
  std::size_t c = 0;
  for (; c + lanes < head.v_channels; c += 2 * lanes)
    SumBlock<2>({arithmetic, row, terms, head, c}, sums);
  if (c < head.v_channels) SumBlock<1>({arithmetic, row, terms, head, c}, sums);
  const double shift = arithmetic.profile.l_from_rounded ? 1 : 0;
  for (c = 0; c < head.v_channels; c += lanes) {
    const Block block{arithmetic, row, terms, head, c};
    AddGroups(block, groups.equal, terms.noise, 1, sums.o.data(), sums.noise_variance.data());
    AddGroups(block, groups.rounded, terms.eps, shift, sums.o.data(),
              sums.rounding_variance.data());
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(ChannelSumsImpl);

void channel_sums(const Arithmetic& arithmetic, const RowScores& row, const RowTerms& terms,
                  const Groups& groups, const Head& head, ChannelSums& sums) {
  HWY_DYNAMIC_DISPATCH(ChannelSumsImpl)(arithmetic, row, terms, groups, head, sums);
}

}  // namespace attest
#endif
