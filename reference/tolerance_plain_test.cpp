// SPDX-License-Identifier: Apache-2.0
// docs/tolerance.md section 3 once more, in plain loops over long double, one row at a time and
// straight from the inputs: the vectorised sums must give the same T_M and T_S.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/alibi.hpp"
#include "reference/definition.hpp"
#include "reference/expected.hpp"
#include "reference/row_kind.hpp"
#include "reference/testing.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

using Real = long double;
using testing_support::Random;

struct Key {
  Real s = 0, A = 0, Q2 = 0, A_rope = 0, Q2_rope = 0, t = 1, c = 0, alibi = 0, bias = 0, z = 0;
  Real slope = 1, p = 0, Delta = 0, share = 0, bent = 1, vz = 0, eps = 0, eps_o = 0;
  std::int64_t row = 0;
  std::vector<Real> x;  ///< f v
  Real weight() const { return p * bent; }
};

struct Twin {
  const AttentionProblem& problem;
  const AttentionInputs& inputs;
  const PrecisionProfile& f;
  std::vector<Key> keys;
  Real m = 0, l = 0, lse = 0, sink_p = 0, R = 0, kappa = 1;
  bool has_sink = false;
  Real u = 0, u_rope = 0, F = 1;
  bool worst = false;

  Real g(Real n, Real coherence = 1) const {
    const Real steps = worst ? n : std::min(n, 4 * std::sqrt(n * coherence));
    return f.c_acc * u * steps;
  }
};

Real half_ulp_of(Real x, Real unit, Real eta) {
  int exponent = 0;
  if (x == 0) return eta;
  std::frexp(x, &exponent);
  return std::max(std::ldexp(unit, exponent - 1), eta);
}

std::vector<Real> rotated(const AttentionProblem& problem, const Dense<double>& tensor,
                          std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t position,
                          std::vector<Real>& norms) {
  std::vector<Real> x;
  for (std::int64_t c = 0; c < problem.head_dim; ++c) x.push_back(tensor.at(b, h, row, c));
  if (problem.rope == RopePairing::none) return x;
  const std::int64_t half = effective_rope_dim(problem) / 2;
  for (std::int64_t t = 0; t < half; ++t) {
    const bool interleaved = problem.rope == RopePairing::interleaved;
    Real& a = x[static_cast<std::size_t>(interleaved ? 2 * t : t)];
    Real& d = x[static_cast<std::size_t>(interleaved ? 2 * t + 1 : t + half)];
    norms.push_back(std::sqrt(a * a + d * d));
    const RopeAngle angle = rope_angle(problem, position, t);
    const Real cos = Real(angle.cos_high) + angle.cos_low;
    const Real sin = Real(angle.sin_high) + angle.sin_low;
    const Real turned = a * cos - d * sin;
    d = a * sin + d * cos;
    a = turned;
  }
  return x;
}

void add_key(Twin& twin, const Rows& rows, std::int64_t b, std::int64_t h, std::int64_t i,
             std::int64_t j) {
  const AttentionProblem& problem = twin.problem;
  const std::int64_t kv = kv_head(problem, h);
  const std::int64_t qp = qpos(rows.of_query(i), i), kp = kpos(rows.of_key(j), j);
  std::vector<Real> q_norms, k_norms;
  const auto q = rotated(problem, twin.inputs.q, b, h, i, qp, q_norms);
  const auto k = rotated(problem, twin.inputs.k, b, kv, j, kp, k_norms);
  const Real scale = problem.scale ? Real(*problem.scale) : 1 / std::sqrt(Real(problem.head_dim));
  Key key;
  key.row = j;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const Real product = scale * q[c] * k[c];
    key.s += product, key.A += std::fabs(product), key.Q2 += product * product;
  }
  for (std::size_t t = 0; t < q_norms.size(); ++t) {
    const Real product = scale * q_norms[t] * k_norms[t];
    key.A_rope += std::fabs(product), key.Q2_rope += product * product;
  }
  if (problem.alibi != AlibiKind::none)
    key.alibi = alibi_term(problem.alibi, Real(slope_at(twin.inputs, b, h)), qp, kp);
  key.bias = bias_at(twin.inputs, b, h, i, j);
  const Real before = problem.alibi_inside_softcap ? key.s + key.alibi : key.s;
  key.c = before;
  if (problem.softcap > 0) {
    key.c = problem.softcap * std::tanh(before / problem.softcap);
    key.t = std::pow(std::cosh(before / problem.softcap), Real(-2));
  }
  key.z = key.c + (problem.alibi_inside_softcap ? 0 : key.alibi) + key.bias;
  const bool kept = !twin.inputs.keep.present || twin.inputs.keep.at(b, h, i, j) != 0;
  for (std::int64_t c = 0; c < problem.v_head_dim; ++c)
    key.x.push_back(kept ? twin.F * twin.inputs.v.at(b, kv, j, c) : 0);
  twin.keys.push_back(key);
}

void weigh(Twin& twin, Real sink) {
  twin.m = twin.has_sink ? sink : -INFINITY;
  for (const Key& key : twin.keys) twin.m = std::max(twin.m, key.z);
  twin.l = twin.has_sink ? std::exp(sink - twin.m) : 0;
  for (const Key& key : twin.keys) twin.l += std::exp(key.z - twin.m);
  twin.lse = twin.m + std::log(twin.l);
  for (Key& key : twin.keys) key.p = std::exp(key.z - twin.m) / twin.l;
  twin.sink_p = twin.has_sink ? std::exp(sink - twin.m) / twin.l : 0;

  int updates[2] = {0, 0};
  const std::int64_t blocks = (twin.problem.kv_len + 15) / 16;
  for (int direction = 0; direction < 2; ++direction) {
    Real running = -INFINITY;
    for (std::int64_t n = 0; n < blocks; ++n) {
      const std::int64_t block = direction ? blocks - 1 - n : n;
      Real largest = -INFINITY;
      for (const Key& key : twin.keys)
        if (key.row / 16 == block) largest = std::max(largest, key.z);
      if (largest > running) running = largest, ++updates[direction];
    }
  }
  twin.R = std::max(updates[0], updates[1]);
}

/// Sections 3.1, 3.2, 3.4 for one key.
void add_errors(Twin& twin, Key& key) {
  const AttentionProblem& problem = twin.problem;
  const PrecisionProfile& f = twin.f;
  const Real u = twin.u, u2 = u * u, d = static_cast<Real>(problem.head_dim);
  const bool alibi = problem.alibi != AlibiKind::none, inside = problem.alibi_inside_softcap;
  const bool bias = problem.bias != BiasKind::none;
  const Real z = std::fabs(key.z), below = std::fabs(key.z - twin.m), m = std::fabs(twin.m);
  const Real lse = std::fabs(twin.lse), s = std::fabs(key.s), c = std::fabs(key.c);

  Real damped = twin.g(d) * key.A + 3 * u * s + 3 * std::sqrt(Real(2)) * twin.u_rope * key.A_rope +
                2 * f.u_in * (key.A + key.A_rope + s);
  Real damped2 = u2 * f.c_acc * f.c_acc * (d / 3 * (s * s + key.Q2) + key.Q2 + 2 * s * s) +
                 2 * twin.u_rope * twin.u_rope * key.Q2_rope +
                 2 * f.u_in * f.u_in * (key.Q2 + key.Q2_rope);
  if (alibi && inside) {
    damped += 3 * u * std::fabs(key.alibi) + u * std::fabs(key.s + key.alibi);
    damped2 += u2 * (3 * key.alibi * key.alibi + (key.s + key.alibi) * (key.s + key.alibi));
  }
  key.Delta = damped;
  if (problem.softcap > 0) {
    // The cap bends most on the way from the score towards 0: tanh a - tanh(a - r) =
    // sinh r / (cosh a cosh(a - r)).
    const Real cap = problem.softcap, r = damped / cap;
    const Real a = std::fabs(inside ? key.s + key.alibi : key.s) / cap;
    const Real both = std::cosh(a) * std::cosh(a - r);
    key.Delta = cap * std::sinh(r) / both;
    key.slope = std::cosh(r) / both;
  }
  key.vz = key.slope * key.slope * damped2;
  if (problem.softcap > 0) key.Delta += 6 * u * c, key.vz += 12 * u2 * c * c;
  if (bias || (alibi && !inside)) key.Delta += u * z, key.vz += u2 * z * z;
  if (alibi && !inside) {
    key.Delta += 3 * u * std::fabs(key.alibi);
    key.vz += 3 * u2 * key.alibi * key.alibi;
    if (bias) {
      const Real partial = std::max({std::fabs(key.c + key.alibi), std::fabs(key.c + key.bias),
                                     std::fabs(key.alibi + key.bias)});
      key.Delta += u * partial;
      key.vz += u2 * partial * partial;
    }
  }
  const Real stored = std::max(z, key.slope * s);
  if (f.u_score > 0) {
    key.Delta += f.u_score * (stored + key.Delta) + f.eta_score;
    key.vz += f.u_score * f.u_score * stored * stored + f.eta_score * f.eta_score;
  }
  const Real rescale = twin.worst ? twin.R : std::min(twin.R, 2 * std::sqrt(twin.R));
  key.Delta += 2 * u * (z + m + below + lse) + f.e_exp + f.e_exp * rescale;
  key.vz += u2 * (2 * z * z + 2 * m * m + 2 * below * below + 2 * lse * lse) +
            f.e_exp * f.e_exp * (1 + twin.R);
  key.bent = key.Delta > 0.05L ? std::expm1(key.Delta) / key.Delta : 1;
  if (f.u_p > 0) key.eps = std::max<Real>(f.u_p * key.p, f.eta_p / (f.p_normalised ? 1 : twin.l));
  key.eps_o = key.eps + (problem.dropout_p > 0 ? u * key.p : 0);
}

/// Independent sum plus the sum over groups of the squared group sum; keys are sorted by z.
template <class Value, class Apart>
Real grouped(const std::vector<Key>& keys, Value value, Apart apart) {
  Real total = 0, group = 0;
  for (std::size_t x = 0, first = 0; x < keys.size(); ++x) {
    if (x > 0 && apart(keys[first], keys[x])) {
      total += group * group;
      group = 0;
      first = x;
    }
    group += value(keys[x]);
    total += value(keys[x]) * value(keys[x]);
  }
  return total + group * group;
}

struct Pair {
  Real mixed = 0, stat = 0;
};

struct RowTolerance {
  std::vector<Pair> o;
  Pair lse;
};

RowTolerance tolerances(Twin& twin) {
  const PrecisionProfile& f = twin.f;
  const Real u = twin.u;
  for (Key& key : twin.keys) add_errors(twin, key);
  std::stable_sort(twin.keys.begin(), twin.keys.end(),
                   [](const Key& a, const Key& b) { return a.z < b.z; });
  const bool dropout = twin.problem.dropout_p > 0;
  const auto equal_apart = [](const Key& a, const Key& b) {
    return b.z - a.z > 1e-13 * (1 + std::fabs(b.z));
  };
  const Real width = (f.u_p + (dropout ? u : 0)) / 2;
  const auto rounded_apart = [width](const Key& a, const Key& b) { return b.z - a.z > width; };

  const Real n = static_cast<Real>(twin.keys.size());
  twin.kappa = (grouped(
                    twin.keys, [](const Key&) { return 1; },
                    [u](const Key& a, const Key& b) { return b.z - a.z > 8 * u; }) -
                n) /
               n;

  Real up = 0, remaining = 0, n_l = 0, small_l = 0, eps = 0, noise = 0, along = 0, along_alibi = 0;
  Real coherent = 0, largest = 0;
  for (const Key& key : twin.keys) {
    up += key.p * std::expm1(key.Delta), remaining += key.p * std::exp(-key.Delta);
    const bool counted = twin.worst || key.p > 2 * u;
    (counted ? n_l : small_l) += counted ? 1 : key.p;
    eps += key.eps, noise += key.weight() * key.weight() * key.vz;
    along += key.p * key.s * key.t;
    along_alibi += key.p * (twin.problem.alibi_inside_softcap ? key.t : 1) * key.alibi;
    coherent += key.weight() * key.slope *
                std::sqrt(f.u_in * f.u_in * (key.Q2 + key.Q2_rope) +
                          twin.u_rope * twin.u_rope * key.Q2_rope);
    largest = std::max(largest, key.p * key.Delta);
  }
  Real sink_Delta = 0, sink_share = 0, sink_noise = 0, sink = 0;
  if (twin.has_sink) {
    sink = std::log(twin.sink_p) + twin.lse;
    const Real common =
        2 * u *
            (std::fabs(sink) + std::fabs(twin.m) + std::fabs(sink - twin.m) + std::fabs(twin.lse)) +
        f.e_exp;
    sink_Delta = common + f.e_exp * twin.R;
    up += twin.sink_p * std::expm1(sink_Delta), remaining += twin.sink_p * std::exp(-sink_Delta);
    const bool counted = twin.worst || twin.sink_p > 2 * u;
    (counted ? n_l : small_l) += counted ? 1 : twin.sink_p;
    sink_noise = twin.sink_p * common;
    noise += sink_noise * sink_noise;
    largest = std::max(largest, twin.sink_p * sink_Delta);
  }
  // Long double holds exp(11,000), which no drawn score needs.
  const Real growth = std::max(std::log1p(up), -std::log(remaining));
  const bool uncertain = up > 1e3 * remaining;
  const auto share = [&](Real p, Real Delta) {
    return uncertain ? std::min<Real>(p * std::exp(Delta) / remaining, 1)
                     : p * std::expm1(Delta) / remaining;
  };
  for (Key& key : twin.keys) key.share = share(key.p, key.Delta);
  if (twin.has_sink) sink_share = share(twin.sink_p, sink_Delta);
  const bool first_order = !twin.worst && growth <= 0.02 && largest <= 0.05;

  RowTolerance row;
  const Real steps =
      u * (2 * std::fabs(twin.lse) + 2 * std::fabs(twin.m) + 3 * std::fabs(std::log(twin.l))) +
      2 * u;
  const Real lost_l = n * f.eta_exp / twin.l;
  const Real rounded_l = f.l_from_rounded ? -std::log1p(-std::min<Real>(0.9, eps)) : 0;
  row.lse.mixed = growth + rounded_l + twin.g(n_l + 2, twin.kappa) + small_l + lost_l + steps;
  row.lse.stat = row.lse.mixed;
  if (first_order) {
    const Real both = grouped(
        twin.keys, [](const Key& k) { return k.weight() * std::sqrt(k.vz); }, equal_apart);
    Real variance = std::max(noise, both) + u * u * (n_l * twin.kappa / 2 + 3);
    if (f.l_from_rounded)
      variance += grouped(
          twin.keys, [](const Key& k) { return k.eps; }, rounded_apart);
    row.lse.stat = 4 * std::sqrt(variance) + steps + small_l + lost_l +
                   (2 * u + 3 * f.u_in) * std::fabs(along) + 2 * u * std::fabs(along_alibi) +
                   4 * coherent;
  }

  const Real keep_error =
      dropout ? u * (twin.problem.dropout_p / (1 - Real(twin.problem.dropout_p)) + 2) : 0;
  const Real weights = n + (twin.has_sink ? 1 : 0);
  const Real merge_error =
      f.lse_merged && weights > 1
          ? f.c_acc * u * (3 * std::fabs(twin.lse) + 5 * std::log(weights) + 4) + 2 * f.e_exp
          : 0;
  const Real common = keep_error + merge_error;
  for (std::size_t c = 0; c < static_cast<std::size_t>(twin.problem.v_head_dim); ++c) {
    Real o = 0, X = 0, W2 = 0;
    for (const Key& key : twin.keys) {
      o += key.p * key.x[c], X += key.p * std::fabs(key.x[c]);
      W2 += key.p * key.p * key.x[c] * key.x[c];
    }
    Real E = 0, reach = 0, distance = 0, rounding = 0, n_c = 0, small = 0, abs_small = 0;
    Real along_c = 0, along_alibi_c = 0;
    for (const Key& key : twin.keys) {
      const Real apart = key.x[c] - o, weighted = key.p * key.x[c];
      E += key.share * std::fabs(apart);
      reach = std::max(reach, std::fabs(apart));
      distance += std::fabs(apart);
      rounding += key.eps_o * std::max(std::fabs(key.x[c]), f.p_normalised ? 0 : std::fabs(apart));
      if (twin.worst || std::fabs(weighted) > 2 * u * X || X == 0)
        ++n_c;
      else
        small += weighted, abs_small += std::fabs(weighted);
      along_c += key.p * key.s * key.t * apart;
      along_alibi_c += key.p * (twin.problem.alibi_inside_softcap ? key.t : 1) * key.alibi * apart;
    }
    const Real a = std::fabs(o);
    if (twin.has_sink) {
      E += sink_share * a;
      reach = std::max(reach, a);
      distance += a;
    }
    const Real lost = f.eta_exp / twin.l * distance,
               underflow = 4 * f.eta_acc * (n + 2) + f.eta_in * twin.F;
    // |x| on average is at most E + |o|, where any key may carry the row.
    const Real beyond = E < reach && !uncertain ? 0 : std::max<Real>(std::min(E, reach) + a - X, 0);
    const Real taken_over = (twin.g(n_c + 2, twin.kappa) + f.u_in + f.u_p) * beyond;
    const Real mixed = taken_over + std::min(E, reach) + rounding +
                       twin.g(n_c + 2, twin.kappa) * X + abs_small +
                       (twin.g(n_l + 2, twin.kappa) + small_l) * a + 3 * u * a + lost + f.u_in * X +
                       common * a + underflow;
    Pair pair;
    pair.mixed = mixed + half_ulp_of(a + mixed, f.u_out, f.eta_out);
    pair.stat = pair.mixed;
    if (first_order) {
      const Real V1 =
          grouped(
              twin.keys, [&](const Key& k) { return k.weight() * std::sqrt(k.vz) * (k.x[c] - o); },
              equal_apart) +
          sink_noise * sink_noise * o * o;
      const Real VP =
          f.u_p > 0 || dropout
              ? grouped(
                    twin.keys,
                    [&](const Key& k) { return k.eps_o * (k.x[c] - (f.l_from_rounded ? o : 0)); },
                    rounded_apart)
              : 0;
      const Real Va = u * u * f.c_acc * f.c_acc * ((n_c * twin.kappa / 2 + 3) * (o * o + W2) + W2) +
                      u * u * (n_l * twin.kappa / 2 + 3) * o * o + f.u_in * f.u_in * W2;
      const Real stat = 4 * std::sqrt(V1 + VP + Va) + (2 * u + 3 * f.u_in) * std::fabs(along_c) +
                        2 * u * std::fabs(along_alibi_c) + std::fabs(small) + small_l * a +
                        (3 * u + f.u_in + common) * a + lost + underflow;
      pair.stat = stat + half_ulp_of(a + stat, f.u_out, f.eta_out);
    }
    row.o.push_back(pair);
  }
  return row;
}

std::vector<PrecisionProfile> profiles() {
  PrecisionProfile f32, flash, stored, l_sum, tf32, truncating, half, merged;
  flash.u_p = flash.u_out = 0x1p-8, flash.eta_p = flash.eta_out = 0x1p-134;
  stored = flash, stored.u_score = 0x1p-8, stored.eta_score = 0x1p-134, stored.p_normalised = true;
  l_sum = flash, l_sum.l_from_rounded = true;
  l_sum.u_p = l_sum.u_out = 0x1p-11, l_sum.eta_p = l_sum.eta_out = 0x1p-25;
  tf32.u_in = tf32.u_p = 0x1p-11, tf32.u_rope = 0x1p-20;
  tf32.eta_in = 0x1p-30;  // large enough to show
  truncating = flash, truncating.c_acc = 2, truncating.lse_merged = true;
  half.u_acc = 0x1p-11, half.e_exp = 0x1p-9, half.max_acc = 65504, half.u_out = 0x1p-11;
  merged.lse_merged = true;
  return {f32, flash, stored, l_sum, tf32, truncating, half, merged};
}

void expect_close(double simd, Real plain, const std::string& where) {
  EXPECT_LE(std::fabs(simd - plain), 1e-7L * plain)
      << where << ": " << simd << ", plain loops give " << static_cast<double>(plain);
}

TEST(TolerancePlain, VectorisedSumsGiveTheSame) {
  const auto all = profiles();
  int compared = 0, first_order = 0;
  for (std::uint64_t seed = 0; seed < 350; ++seed) {
    AttentionProblem problem = testing_support::random_problem(seed);
    problem.dtype = DType::f32;
    problem.bias = problem.bias == BiasKind::lowest ? BiasKind::normal : problem.bias;
    // Every seventh problem is long enough for blocks, several vectors and groups.
    if (seed % 7 == 0 && problem.cu_seqlens_q.empty() && problem.seqlens_k.empty())
      problem.kv_len = 100, problem.head_dim = 12, problem.v_head_dim = 19;
    const PrecisionProfile& profile = all[seed % all.size()];
    const AttentionInputs inputs = testing_support::random_inputs(problem, seed);
    const Expected expected = expect(problem, inputs, profile);
    for (std::int64_t b = 0, row = 0; b < problem.batch; ++b) {
      const Rows rows = rows_of(problem, b);
      for (std::int64_t h = 0; h < problem.num_heads; ++h)
        for (std::int64_t i = 0; i < problem.q_len; ++i, ++row) {
          const auto at = static_cast<std::size_t>(row);
          if (expected.rows[at] != RowKind::ordinary) continue;
          Twin twin{problem, inputs, profile, {}};
          twin.u = profile.u_acc;
          twin.worst = profile.c_acc == 2;
          twin.u_rope =
              problem.rope == RopePairing::none ? 0 : std::max(profile.u_rope, 2 * profile.u_acc);
          if (problem.dropout_p > 0) twin.F = 1 / (1 - Real(problem.dropout_p));
          const double sink = sink_at(inputs, h);
          twin.has_sink = sink != -INFINITY;
          for (const std::int64_t j : visible_keys(problem, inputs, rows, b, h, i))
            if (!bias_hides(inputs, b, h, i, j)) add_key(twin, rows, b, h, i, j);
          weigh(twin, sink);
          const RowTolerance plain = tolerances(twin);
          const std::string where = "seed " + std::to_string(seed) + " row " + std::to_string(row);
          const auto channels = static_cast<std::size_t>(problem.v_head_dim);
          for (std::size_t c = 0; c < channels; ++c) {
            const std::string place = where + " channel " + std::to_string(c);
            expect_close(expected.o.t_mixed[at * channels + c], plain.o[c].mixed, place + " T_M");
            expect_close(expected.o.t_stat[at * channels + c], plain.o[c].stat, place + " T_S");
          }
          expect_close(expected.lse.t_mixed[at], plain.lse.mixed, where + " lse T_M");
          expect_close(expected.lse.t_stat[at], plain.lse.stat, where + " lse T_S");
          if (HasFailure()) return;
          ++compared;
          first_order += plain.lse.mixed != plain.lse.stat;
        }
    }
  }
  EXPECT_GT(compared, 2500);
  EXPECT_GT(first_order, 1000);
}

}  // namespace
}  // namespace attest
