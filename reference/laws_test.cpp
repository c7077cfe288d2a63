// SPDX-License-Identifier: Apache-2.0
// Laws that the definition must obey on random problems of every feature, and a second writing of
// it in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attest/case_line.hpp"
#include "reference/definition.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::random_inputs;
using testing_support::random_problem;
using testing_support::same;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Real = long double;

/// Rows [first, end) of one axis of a tensor; an axis of extent 1 broadcasts and stays.
template <class T>
Dense<T> slice(const Dense<T>& tensor, int axis, std::int64_t first, std::int64_t end) {
  const auto a = static_cast<std::size_t>(axis);
  if (!tensor.present || tensor.shape[a] == 1) return tensor;
  auto shape = tensor.shape;
  shape[a] = end - first;
  Dense<T> part(shape);
  std::array<std::int64_t, 4> n{};
  for (n[0] = 0; n[0] < shape[0]; ++n[0])
    for (n[1] = 0; n[1] < shape[1]; ++n[1])
      for (n[2] = 0; n[2] < shape[2]; ++n[2])
        for (n[3] = 0; n[3] < shape[3]; ++n[3]) {
          auto from = n;
          from[a] += first;
          part.at(n[0], n[1], n[2], n[3]) = tensor.at(from[0], from[1], from[2], from[3]);
        }
  return part;
}

/// One sequence or segment as a problem of its own: its rows cut out, no lengths, pads or packing.
/// Blocks count rows of the call, so such problems are left out.
struct Alone {
  AttentionProblem problem;
  AttentionInputs inputs;
};

Alone cut_out(const AttentionProblem& p, const AttentionInputs& x, std::int64_t b, std::size_t s,
              std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
  Alone alone{p, x};
  AttentionProblem& own = alone.problem;
  own.batch = 1;
  own.q_len = q1 - q0;
  own.kv_len = k1 - k0;
  own.cu_seqlens_q = own.cu_seqlens_k = {};
  own.seqlens_q = own.seqlens_k = own.left_pad_q = own.left_pad_k = {};
  if (!p.q_offset.empty()) own.q_offset = {p.q_offset[s]};
  if (!p.prefix_len.empty()) own.prefix_len = {p.prefix_len[s]};
  const auto rows = [&](auto& tensor, int q_axis, int k_axis) {
    tensor = slice(tensor, 0, b, b + 1);
    if (q_axis >= 0) tensor = slice(tensor, q_axis, q0, q1);
    if (k_axis >= 0) tensor = slice(tensor, k_axis, k0, k1);
  };
  AttentionInputs& in = alone.inputs;
  rows(in.q, 2, -1);
  rows(in.k, -1, 2);
  rows(in.v, -1, 2);
  rows(in.bias, 2, 3);
  rows(in.mask, 2, 3);
  rows(in.keep, 2, 3);
  rows(in.slopes, -1, -1);
  return alone;
}

TEST(Laws, ASequenceIsTheSameAlone) {
  std::int64_t compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const AttentionProblem p = random_problem(seed);
    if (p.blocks) continue;
    const AttentionInputs x = random_inputs(p, seed);
    const bool packed = !p.cu_seqlens_q.empty();
    for (std::size_t s = 0; s < static_cast<std::size_t>(num_sequences(p)); ++s) {
      const auto entry = [&](const std::vector<std::int64_t>& list, std::int64_t absent) {
        return list.empty() ? absent : list[s];
      };
      const std::int64_t q0 = packed ? p.cu_seqlens_q[s] : entry(p.left_pad_q, 0);
      const std::int64_t q1 = packed ? p.cu_seqlens_q[s + 1] : entry(p.seqlens_q, p.q_len);
      const std::int64_t k0 = packed ? p.cu_seqlens_k[s] : entry(p.left_pad_k, 0);
      const std::int64_t k1 = packed ? p.cu_seqlens_k[s + 1] : entry(p.seqlens_k, p.kv_len);
      const std::int64_t b = packed ? 0 : static_cast<std::int64_t>(s);
      const Alone alone = cut_out(p, x, b, s, q0, q1, k0, k1);
      for (std::int64_t i = q0; i < q1; ++i) {
        const ExactRow whole = definition_row(p, x, b, 0, i);
        const ExactRow own = definition_row(alone.problem, alone.inputs, 0, 0, i - q0);
        ASSERT_EQ(whole.kind, own.kind) << print_case(p) << " s=" << s << " i=" << i;
        ASSERT_TRUE(same(whole, own)) << print_case(p) << " s=" << s << " i=" << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Laws, GroupedHeadsEqualRepeatedKeysAndValues) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    AttentionProblem p = random_problem(seed);
    p.num_kv_heads = 2;
    p.num_heads = 6;
    const AttentionInputs x = random_inputs(p, seed);
    AttentionProblem repeated = p;
    repeated.num_kv_heads = 6;
    AttentionInputs y = x;
    y.k = Dense<double>({p.batch, 6, p.kv_len, p.head_dim});
    y.v = Dense<double>({p.batch, 6, p.kv_len, p.v_head_dim});
    constexpr std::int64_t kGroup[] = {0, 0, 0, 1, 1, 1};
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < 6; ++h)
        for (std::int64_t j = 0; j < p.kv_len; ++j) {
          for (std::int64_t c = 0; c < p.head_dim; ++c)
            y.k.at(b, h, j, c) = x.k.at(b, kGroup[h], j, c);
          for (std::int64_t c = 0; c < p.v_head_dim; ++c)
            y.v.at(b, h, j, c) = x.v.at(b, kGroup[h], j, c);
        }
    for (std::int64_t h = 0; h < 6; ++h)
      ASSERT_TRUE(same(definition_row(p, x, 0, h, p.q_len - 1),
                       definition_row(repeated, y, 0, h, p.q_len - 1)))
          << print_case(p);
  }
}

TEST(Laws, EveryVisibilityRuleEqualsItsMask) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    AttentionProblem p = random_problem(seed);
    // Positions stay as they are: they are explicit, and full length.
    p.seqlens_q = p.seqlens_k = p.left_pad_q = p.left_pad_k = {};
    p.cu_seqlens_q = p.cu_seqlens_k = {};
    p.align = Align::q_offset;
    p.q_offset.assign(static_cast<std::size_t>(p.batch), 2);
    if (p.base == Base::prefix) p.prefix_len.assign(static_cast<std::size_t>(p.batch), 2);
    const AttentionInputs x = random_inputs(p, seed);
    AttentionProblem plain = p;
    plain.base = Base::full;
    plain.prefix_len = {};
    plain.window_left = plain.window_right = -1;
    plain.global_tokens = 0;
    AttentionInputs y = x;
    y.blocks = {};
    const auto set = visible_set(p, x, 0, 0);
    y.mask = Dense<std::uint8_t>({1, 1, p.q_len, p.kv_len});
    y.mask.values.assign(set.begin(), set.end());
    for (std::int64_t i = 0; i < p.q_len; ++i)
      ASSERT_TRUE(same(definition_row(p, x, 0, 0, i), definition_row(plain, y, 0, 0, i)))
          << print_case(p);
  }
}

TEST(Laws, PartsOverDisjointKeysMergeByTheirLse) {
  std::int64_t merged = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    AttentionProblem p = random_problem(seed);
    p.empty_output = EmptyOutput::zero;
    p.empty_lse = EmptyLse::neg_inf;
    const AttentionInputs x = random_inputs(p, seed);
    const auto set = visible_set(p, x, 0, 0);
    // Even and odd keys apart; the sink belongs to the even part.
    AttentionInputs part[2] = {x, x};
    for (int parity : {0, 1}) {
      part[parity].mask = Dense<std::uint8_t>({1, 1, p.q_len, p.kv_len});
      for (std::size_t n = 0; n < set.size(); ++n)
        part[parity].mask.values[n] =
            set[n] && static_cast<std::int64_t>(n) % p.kv_len % 2 == parity;
    }
    part[1].sink = {};
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const ExactRow whole = definition_row(p, x, 0, 0, i);
      const ExactRow even = definition_row(p, part[0], 0, 0, i);
      const ExactRow odd = definition_row(p, part[1], 0, 0, i);
      if (whole.kind != RowKind::ordinary || even.lse.high == -kInfinity ||
          odd.lse.high == -kInfinity)
        continue;
      const auto value = [](const ExactNumber& n) { return Real(n.high) + Real(n.low); };
      const Real a = std::exp(value(even.lse) - value(whole.lse));
      const Real b = std::exp(value(odd.lse) - value(whole.lse));
      ASSERT_NEAR(static_cast<double>(a + b - 1), 0, 1e-17) << print_case(p);
      for (std::size_t c = 0; c < whole.o.size(); ++c)
        ASSERT_NEAR(
            static_cast<double>(a * value(even.o[c]) + b * value(odd.o[c]) - value(whole.o[c])), 0,
            1e-17)
            << print_case(p);
      ++merged;
    }
  }
  EXPECT_GT(merged, 150);
}

TEST(Laws, DecodingOneByOneEqualsOneCall) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    AttentionProblem p = random_problem(seed);
    p.batch = 1;
    p.base = Base::causal;
    p.align = Align::q_offset;
    p.q_offset = {0};
    p.prefix_len = {};
    p.q_len = p.kv_len;
    p.seqlens_q = p.seqlens_k = p.left_pad_q = p.left_pad_k = {};
    p.cu_seqlens_q = p.cu_seqlens_k = {};
    p.blocks = false;
    p.slopes = SlopesKind::standard;
    const AttentionInputs x = random_inputs(p, seed);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      Alone step = cut_out(p, x, 0, 0, i, i + 1, 0, i + 1);  // a cache of i + 1 rows
      step.problem.q_offset = {i};
      const ExactRow whole = definition_row(p, x, 0, 0, i);
      if (whole.kind == RowKind::empty && p.empty_output == EmptyOutput::mean_v)
        continue;  // averages the keys of the call
      ASSERT_TRUE(same(whole, definition_row(step.problem, step.inputs, 0, 0, 0)))
          << print_case(p) << " i=" << i;
    }
  }
}

TEST(Laws, KeyAnchoredAlibiShiftsLseAlone) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    AttentionProblem p = random_problem(seed);
    p.alibi = AlibiKind::signed_;
    p.alibi_inside_softcap = false;
    p.sink = SinkKind::none;
    const AttentionInputs x = random_inputs(p, seed);
    AttentionProblem anchored = p;
    anchored.alibi = AlibiKind::key_anchored;
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const ExactRow a = definition_row(p, x, 0, 0, i), b = definition_row(anchored, x, 0, 0, i);
      if (a.kind != RowKind::ordinary) continue;
      const auto qpos = query_positions(p, 0)[static_cast<std::size_t>(i)];
      for (std::size_t c = 0; c < a.o.size(); ++c) ASSERT_TRUE(same(a.o[c], b.o[c]));
      ASSERT_NEAR(b.lse.high - a.lse.high, x.slopes.values[0] * static_cast<double>(qpos), 1e-13)
          << print_case(p);
    }
  }
}

TEST(Laws, RopeDependsOnTheDistanceAlone) {
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    AttentionProblem p;
    p.head_dim = 6;
    p.rope = pairing;
    p.rope_dim = 4;
    p.scale = 1;
    p.align = Align::q_offset;
    p.q_offset = {5};
    AttentionInputs x = random_inputs(p, 3);
    const ExactRow near = definition_row(p, x, 0, 0, 0);
    // The same key 7 rows later, the same query 7 positions later.
    AttentionProblem far = p;
    far.kv_len = 8;
    far.q_offset = {12};
    AttentionInputs y = random_inputs(far, 4);
    y.q = x.q;
    y.mask = Dense<std::uint8_t>({1, 1, 1, 8});
    y.mask.values[7] = 1;
    for (std::int64_t c = 0; c < 6; ++c) y.k.at(0, 0, 7, c) = x.k.at(0, 0, 0, c);
    EXPECT_TRUE(same(near.lse, definition_row(far, y, 0, 0, 0).lse));
    // Only a rotation of one of them changes the score.
    far.q_offset = {11};
    EXPECT_FALSE(same(near.lse, definition_row(far, y, 0, 0, 0).lse));
  }
}

TEST(Laws, WhatIsInvisibleDoesNotMatter) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    AttentionProblem p = random_problem(seed);
    if (p.empty_output == EmptyOutput::mean_v) p.empty_output = EmptyOutput::zero;
    const AttentionInputs x = random_inputs(p, seed);
    const auto set = visible_set(p, x, 0, 0);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      AttentionInputs y = x;
      const double nan = std::numeric_limits<double>::quiet_NaN();
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        const bool by_bias = x.bias.present && x.bias.values[x.bias.broadcast_index(0, 0, i, j)] ==
                                                   -kInfinity;  // k and v are visible then
        if (set[static_cast<std::size_t>(i * p.kv_len + j)] || by_bias) continue;
        for (std::int64_t c = 0; c < p.head_dim; ++c) y.k.at(0, 0, j, c) = nan;
        for (std::int64_t c = 0; c < p.v_head_dim; ++c) y.v.at(0, 0, j, c) = nan;
      }
      ASSERT_TRUE(same(definition_row(p, x, 0, 0, i), definition_row(p, y, 0, 0, i)))
          << print_case(p) << " i=" << i;
    }
  }
}

TEST(Laws, TheTraceAddsUpToTheRow) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const AttentionInputs x = random_inputs(p, seed);
    const auto set = visible_set(p, x, 0, 0);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const RowTrace trace = trace_row(p, x, 0, 0, i);
      ASSERT_EQ(trace.keys.size(), static_cast<std::size_t>(p.kv_len));
      EXPECT_EQ(trace.qpos, query_positions(p, 0)[static_cast<std::size_t>(i)]);
      double total = trace.has_sink ? std::exp(trace.sink - trace.exact.lse.high) : 0;
      std::vector<double> o(static_cast<std::size_t>(p.v_head_dim));
      for (const RowTrace::Key& key : trace.keys) {
        ASSERT_EQ(key.visible, set[static_cast<std::size_t>(i * p.kv_len + key.j)] != 0);
        total += key.weight;
        for (std::size_t c = 0; c < o.size(); ++c)
          o[c] += key.keep_factor * key.weight * x.v.at(0, 0, key.j, static_cast<std::int64_t>(c));
      }
      if (trace.kind != RowKind::ordinary) continue;
      EXPECT_NEAR(total, 1, 1e-13) << print_case(p);
      for (std::size_t c = 0; c < o.size(); ++c)
        EXPECT_NEAR(o[c], trace.exact.o[c].high, 1e-13) << print_case(p);
    }
  }
}

}  // namespace
}  // namespace attest
