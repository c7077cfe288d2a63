// SPDX-License-Identifier: Apache-2.0
// A second writing of the definition, in long double, held against it on random problems of every
// feature.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attest/case_line.hpp"
#include "reference/definition.hpp"
#include "reference/testing.hpp"

namespace attest {
namespace {

using testing_support::random_inputs;
using testing_support::random_problem;

using Real = long double;

/// Section 2 once more, in long double and without its order of steps: scores are put together per
/// key, exponentials are summed as they are. Scores of random problems stay below 200.
struct PlainRow {
  std::vector<Real> o;
  Real lse;
};

PlainRow plain_row(const AttentionProblem& p, const AttentionInputs& x, std::int64_t b,
                   std::int64_t h, std::int64_t i) {
  const auto seen = visible_set(p, x, b, h);
  const auto qpos = query_positions(p, b), kpos = key_positions(p, b);
  const std::int64_t g = h * p.num_kv_heads / p.num_heads;
  const auto rotated = [&](const Dense<double>& t, std::int64_t head, std::int64_t row,
                           std::int64_t position) {
    std::vector<Real> out;
    for (std::int64_t c = 0; c < p.head_dim; ++c) out.push_back(t.at(b, head, row, c));
    if (p.rope == RopePairing::none) return out;
    const std::int64_t R = p.rope_dim;
    for (std::int64_t c = 0; c < R; ++c) {
      const bool half = p.rope == RopePairing::half;
      const std::int64_t pair = half ? c % (R / 2) : c / 2;
      const bool is_first = half ? c < R / 2 : c % 2 == 0;
      const std::int64_t partner = half ? (c + R / 2) % R : c ^ 1;
      const Real base = p.rope_ntk == 1
                            ? Real(p.rope_base)
                            : p.rope_base * std::pow(Real(p.rope_ntk), Real(R) / Real(R - 2));
      const Real theta = Real(position) / p.rope_scale / std::pow(base, Real(2 * pair) / Real(R));
      out[static_cast<std::size_t>(c)] =
          t.at(b, head, row, c) * std::cos(theta) +
          (is_first ? -1 : 1) * t.at(b, head, row, partner) * std::sin(theta);
    }
    return out;
  };

  const auto query_position = qpos[static_cast<std::size_t>(i)];
  const auto q = rotated(x.q, h, i, query_position);
  PlainRow row{std::vector<Real>(static_cast<std::size_t>(p.v_head_dim)), 0};
  Real total = p.sink == SinkKind::none ? Real(0) : std::exp(Real(x.sink.at(0, h, 0, 0)));
  for (std::int64_t j = 0; j < p.kv_len; ++j) {
    if (!seen[static_cast<std::size_t>(i * p.kv_len + j)]) continue;
    const auto key_position = kpos[static_cast<std::size_t>(j)];
    const auto k = rotated(x.k, g, j, key_position);
    Real z = std::inner_product(q.begin(), q.end(), k.begin(), Real(0));
    z = p.scale ? z * Real(*p.scale) : z / std::sqrt(Real(p.head_dim));
    Real alibi = 0;
    if (p.alibi != AlibiKind::none) {
      const Real m = x.slopes.broadcast_index(b, h, 0, 0) < x.slopes.values.size()
                         ? x.slopes.values[x.slopes.broadcast_index(b, h, 0, 0)]
                         : 0;
      const auto ahead = static_cast<Real>(key_position - query_position);
      if (p.alibi == AlibiKind::absolute) alibi = -m * std::abs(ahead);
      if (p.alibi == AlibiKind::signed_) alibi = m * ahead;
      if (p.alibi == AlibiKind::key_anchored) alibi = m * static_cast<Real>(key_position);
    }
    if (p.alibi_inside_softcap) z += alibi;
    if (p.softcap > 0) z = p.softcap * std::tanh(z / p.softcap);
    if (!p.alibi_inside_softcap) z += alibi;
    if (p.bias != BiasKind::none) z += x.bias.values[x.bias.broadcast_index(b, h, i, j)];
    const Real e = std::exp(z);
    total += e;
    const Real f = p.dropout_p > 0 ? x.keep.at(b, h, i, j) / (1 - Real(p.dropout_p)) : Real(1);
    for (std::int64_t c = 0; c < p.v_head_dim; ++c)
      row.o[static_cast<std::size_t>(c)] += f * e * x.v.at(b, g, j, c);
  }
  row.lse = std::log(total);
  for (Real& o : row.o) o /= total;
  return row;
}

TEST(PlainWriting, AgreesWithTheDefinition) {
  std::int64_t ordinary = 0, special = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const AttentionProblem p = random_problem(seed);
    ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
    const AttentionInputs x = random_inputs(p, seed);
    for (std::int64_t i = 0; i < p.q_len; ++i)
      for (std::int64_t h = 0; h < p.num_heads; ++h) {
        const std::int64_t b = static_cast<std::int64_t>(seed) % p.batch;
        const ExactRow row = definition_row(p, x, b, h, i);
        if (row.kind != RowKind::ordinary) {
          ++special;
          continue;
        }
        ++ordinary;
        const PlainRow plain = plain_row(p, x, b, h, i);
        const auto value = [](const ExactNumber& n) { return Real(n.high) + Real(n.low); };
        ASSERT_LT(std::abs(plain.lse - value(row.lse)), 1e-15L) << print_case(p);
        for (std::size_t c = 0; c < row.o.size(); ++c)
          ASSERT_LT(std::abs(plain.o[c] - value(row.o[c])), 1e-15L) << print_case(p);
      }
  }
  EXPECT_GT(ordinary, 2000);
  EXPECT_GT(special, 1000);
}

}  // namespace
}  // namespace attest
