// SPDX-License-Identifier: Apache-2.0
// One query row of the backward pass: dP, delta, dZ and dA of every key, and what a kernel in the
// declared arithmetic may make of them. docs/tolerance.md section 4.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "reference/backward_fast.hpp"
#include "reference/gradient_sums.hpp"
#include "reference/tolerance.hpp"

namespace attest {

inline double squared(double x) { return x * x; }

/// One visible key of the row.
template <class R>
struct BackwardKey {
  R p = 0;               ///< before dropout
  R kept = 0;            ///< f p
  R d_p = 0;             ///< f dO.v
  R y = 0;               ///< dP - delta + dLSE, so that dZ = p y
  R slope = 1;           ///< t
  double B = 0, B2 = 0;  ///< f sum |dO v|, f^2 sum (dO v)^2
  Contribution<R> d_z, d_a;
  double shared_z = 0, shared_a = 0;  ///< error through what all keys of the row share
};

/// The row as a whole.
struct BackwardSums {
  double D = 0, D_radius = 0;  ///< delta
  double d_lse = 0;
  double ED = 0, EDS = 0;  ///< error of delta, mixed, and its variance
  double lse_growth = 1;   ///< exp(T_M(lse))
  double lse_variance = 0;
  bool vague = false;
};

/// What the keys' terms are made with.
template <class R>
struct BackwardCall {
  const OracleCall& call;
  const ForwardFindings& forward;
  double unit;  ///< of R

  /// Sizes from which on a narrow type that dS is rounded to, or the accumulator, overflows.
  double largest() const {
    const PrecisionProfile& profile = call.arithmetic.profile;
    const double stored = profile.u_p > 0 && call.problem.dtype != DType::f32
                              ? limits(call.problem.dtype).max_finite
                              : profile.max_acc;
    return std::min(stored, profile.max_acc) / 4;
  }
};

/// p, f p and t in R.
template <class R>
void load_weights(const BackwardCall<R>& at, R keep_factor, std::vector<BackwardKey<R>>& keys) {
  const RowScores& row = at.forward.row;
  const bool pairs = sizeof(R) > sizeof(double), capped = at.call.rules.softcap > 0;
  keys.resize(row.n);
  for (std::size_t x = 0; x < row.n; ++x) {
    BackwardKey<R>& key = keys[x];
    key = {};
    key.p =
        pairs ? (R(row.weight_high[x]) + row.weight_low[x]) / (R(row.l) + row.l_low) : R(row.p[x]);
    const bool dropped = static_cast<std::size_t>(row.value[x]) == at.forward.head.zero_row;
    key.kept = dropped ? R(0) : key.p * keep_factor;
    if (capped) key.slope = pairs ? R(row.damping[x]) + row.damping_low[x] : R(row.damping[x]);
  }
}

/// delta, and the radius of the oracle's own.
template <class R>
R sum_delta(const BackwardCall<R>& at, std::size_t channels,
            const std::vector<BackwardKey<R>>& keys, BackwardSums& sums) {
  R delta = 0;
  double size = 0, weights = 0;
  for (const BackwardKey<R>& key : keys) delta += key.p * key.d_p;
  sums.D = static_cast<double>(delta);
  const double units = static_cast<double>(channels + keys.size()) + 8;
  for (std::size_t x = 0; x < keys.size(); ++x) {
    const double p = static_cast<double>(keys[x].p);
    size += p * keys[x].B;
    weights += (at.forward.row.p_error[x] + 4 * at.unit * p) *
               (std::fabs(static_cast<double>(keys[x].d_p)) + std::fabs(sums.D));
  }
  sums.D_radius = weights + units * at.unit * (size + std::fabs(sums.D));
  return delta;
}

/// Sum over the groups of (the group's sum of weight (d_p - shift))^2.
template <class R>
double sum_groups(const GroupList& groups, const Buffer<double>& weight,
                  const std::vector<BackwardKey<R>>& keys, double shift) {
  double total = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < groups.count; ++i) {
    double sum = 0;
    for (; begin < static_cast<std::size_t>(groups.end[i]); ++begin) {
      const auto x = static_cast<std::size_t>(groups.member[begin]);
      sum += weight[x] * (static_cast<double>(keys[x].d_p) - shift);
    }
    total += sum * sum;
  }
  return total;
}

/// ED and EDS: the error of delta, from the kernel's own o or as sum P dP. The error of o meets dO
/// before absolute values are taken, which keeps |dP - delta| in place of sum |dO| T(o).
template <class R>
void bound_delta(const BackwardCall<R>& at, const Weights<R>& d_o,
                 const std::vector<BackwardKey<R>>& keys, BackwardSums& sums) {
  const Arithmetic& a = at.call.arithmetic;
  const PrecisionProfile& profile = a.profile;
  const RowTerms& terms = at.forward.terms;
  const RowSums& row = *at.forward.sums;
  const ChannelSums& channels = at.forward.channels;
  const double D = sums.D, n = row.n, width = static_cast<double>(d_o.value.size());

  double spread = 0, reach = row.has_sink ? std::fabs(D) : 0, rounded = 0, products = 0, B_sum = 0;
  double noise = 0, rounding = 0, product_squares = 0, along = 0;
  for (std::size_t x = 0; x < keys.size(); ++x) {
    const double p = static_cast<double>(keys[x].p), d_p = static_cast<double>(keys[x].d_p);
    const double apart = std::fabs(d_p - D);
    spread += terms.spread[x] * apart;
    reach = std::max(reach, apart);
    rounded += terms.eps[x] * std::max(std::fabs(d_p), profile.p_normalised ? 0 : apart);
    products += p * std::fabs(d_p);
    B_sum += p * keys[x].B;
    product_squares += squared(p) * (squared(d_p) + keys[x].B2);
    noise += squared(terms.lone_noise[x] * apart);
    rounding += squared(terms.lone_eps[x] * (d_p - (profile.l_from_rounded ? D : 0)));
    along += terms.along_scale[x] * (d_p - D);
  }
  noise += sum_groups(at.forward.groups.equal, terms.noise, keys, D);
  rounding +=
      sum_groups(at.forward.groups.rounded, terms.eps, keys, profile.l_from_rounded ? D : 0);
  noise += squared(row.sink_noise * D);

  double averaging = 0, averaging_variance = 0, o_sum = 0, o_squares = 0, d_o_sum = 0;
  for (std::size_t c = 0; c < d_o.value.size(); ++c) {
    const double unit = a.keep_factor * at.forward.head.unit[c];
    const ChannelError error = channel_error(a, row, channels, c);
    const double product = d_o.abs[c] * std::fabs(channels.o[c]) * unit;
    averaging += d_o.abs[c] * error.mixed * unit;
    averaging_variance += squared(d_o.abs[c] * unit) * error.variance;
    o_sum += product, o_squares += squared(product);
    d_o_sum += d_o.abs[c];
  }
  // The dot product dO.o, or the sum of P dP, whichever the kernel takes.
  const double summed = g(a, width) * o_sum + g(a, n + 2, row.kappa) * products +
                        g(a, width) * B_sum + 2 * profile.u_in * (o_sum + B_sum);
  const double stored = profile.eta_out * d_o_sum;
  sums.ED = std::min(spread + row.sink_spread * std::fabs(D), reach) + rounded + averaging +
            profile.u_out * o_sum + summed + stored;
  const double u2 = squared(a.u * profile.c_acc);
  sums.EDS = noise + rounding + averaging_variance + squared(profile.u_out) * o_squares +
             u2 * ((width / 3) * (D * D + o_squares) + o_squares) +
             u2 * (n * row.kappa / 2 + 3) * (D * D + product_squares) +
             u2 * width * product_squares + squared(profile.u_in) * (o_squares + product_squares) +
             squared(stored) + squared((2 * a.u + 3 * profile.u_in) * along);
}

/// How far 1 - tanh^2 may be from t where its argument errs by `error`.
inline double slope_change(double argument, double slope, double error) {
  const auto slope_at = [](double x) {
    const double E = std::exp(-2 * x);
    return 4 * E / ((1 + E) * (1 + E));
  };
  const double near = slope_at(std::max(argument - error, 0.0));
  return std::max(near - slope, slope - slope_at(argument + error));
}

/// dZ and dA of one key with their errors.
template <class R>
struct KeyError {
  const BackwardCall<R>& at;
  const BackwardSums& sums;
  double width;

  /// Radius of dZ, without what t adds.
  double radius(const BackwardKey<R>& key, std::size_t x, double y) const {
    const double p = static_cast<double>(key.p), unit = at.unit;
    const double y_error =
        (width + 8) * unit * key.B + sums.D_radius +
        4 * unit *
            (std::fabs(static_cast<double>(key.d_p)) + std::fabs(sums.D) + std::fabs(sums.d_lse));
    return (at.forward.row.p_error[x] + 4 * unit * p) * (std::fabs(y) + y_error) + p * y_error;
  }

  /// Error of t in the oracle: of the argument, and of exp.
  double slope_radius(std::size_t x) const {
    const RowScores& row = at.forward.row;
    const ScoreRules& rules = at.call.rules;
    double size = (at.call.arithmetic.head_dim + 4) * row.abs_dot[x] + std::fabs(row.s[x]);
    if (rules.rope) size += 10 * row.rope_abs[x];
    if (rules.alibi_inside) size += 3 * std::fabs(row.alibi[x]);
    const double argument = 2 * at.unit * size / rules.softcap;
    // exp may round to a subnormal number, and the low part of a pair to none.
    constexpr double kUnderflow = 4 * std::numeric_limits<double>::denorm_min();
    return std::min(
        1.0,
        row.damping[x] * (3 * argument + 10 * at.unit) * (argument < 0.2 ? 1 : 1e9) + kUnderflow);
  }

  void fill(std::size_t x, BackwardKey<R>& key) const {
    const Arithmetic& a = at.call.arithmetic;
    const bool capped = at.call.rules.softcap > 0;
    const double y = static_cast<double>(key.y);
    key.d_z.radius = radius(key, x, y);
    const double t = static_cast<double>(key.slope);
    key.d_a.radius = t * key.d_z.radius;
    if (capped)
      key.d_a.radius +=
          slope_radius(x) * (std::fabs(static_cast<double>(key.d_z.value)) + key.d_z.radius);
    if (!at.forward.sums) return;

    const PrecisionProfile& profile = a.profile;
    const RowScores& row = at.forward.row;
    const RowTerms& terms = at.forward.terms;
    const double u = a.u, p = static_cast<double>(key.p);
    const double d_p = std::fabs(static_cast<double>(key.d_p)), D = std::fabs(sums.D);
    const double d_z = std::fabs(static_cast<double>(key.d_z.value));
    const double d_a = std::fabs(static_cast<double>(key.d_a.value));
    const double rounding_z = 2 * u * std::fabs(row.z[x] - row.lse);
    const double rho = std::expm1(std::min(300.0, terms.delta[x] + rounding_z));
    const double growth = (1 + rho) * sums.lse_growth;
    const double p_variance = p > 0 ? squared(terms.noise[x] / p) + squared(rounding_z) : 0;
    // Products of dO.v, P dP and of y itself may underflow.
    const double underflow =
        profile.eta_acc * (2 * width + static_cast<double>(at.forward.row.n) + 4);
    // A weight that may grow by more than its first order meets errors of y with what it grew to.
    const double p_most = terms.delta[x] > 0.05 ? p * (1 + rho) : p;
    const double d_lse = std::fabs(sums.d_lse);
    const double y_error = g(a, width) * key.B + 2 * profile.u_in * key.B + a.keep_error * d_p +
                           2 * u * (d_p + D + d_lse) + underflow;
    const double y_variance =
        squared(u * profile.c_acc) * ((width / 3) * (d_p * d_p + key.B2) + key.B2) +
        2 * squared(profile.u_in) * key.B2 + squared(a.keep_error * d_p) +
        4 * u * u * (d_p * d_p + D * D + d_lse * d_lse) + squared(underflow);
    const double eta =
        profile.eta_p * std::max(1.0, 1 / std::max(std::fabs(at.call.rules.scale), 1e-30));
    // `slope` is t for dA and 1 for dZ, `change` how far the kernel's may be from it, `bends`
    // whether there is one to be made: 1 - tanh^2 is off by roundings of 1, however little t is and
    // however sure its argument. What delta does through t stands in `shared`; through its change
    // it is the key's own.
    const auto errors = [&](double d_s, double slope, double change, bool bends,
                            Contribution<R>& to, double& shared) {
      const double most = slope + change;
      const double lost = profile.eta_exp * most * std::fabs(y);
      const double bent = bends ? d_z * (change + 8 * u * slope + 4 * u) : 0;
      const double own = d_s * (rho + 4 * u) * sums.lse_growth +
                         growth * (most * p * y_error + p * sums.ED * change + bent);
      shared = growth * slope * p * sums.ED + d_s * (sums.lse_growth - 1);
      const double stored = profile.u_p > 0 ? std::max(profile.u_p * (d_s + own + shared), eta) : 0;
      to.mixed = own + stored + 4 * profile.eta_acc + lost;
      to.variance = d_s * d_s * (p_variance + 16 * u * u) + squared(most * p_most) * y_variance +
                    (squared(p_most * change) + squared(slope * (p_most - p))) * sums.EDS +
                    squared(stored) + squared(4 * profile.eta_acc) + squared(lost);
      if (bends) to.variance += squared(d_z) * (36 * u * u + squared(change / kLambda));
    };
    errors(d_z, 1, 0, false, key.d_z, key.shared_z);
    double change = 0;
    if (capped) {
      double argument = row.s[x];
      if (at.call.rules.alibi_inside) argument += row.alibi[x];
      const double cap = at.call.rules.softcap;
      change = slope_change(std::fabs(argument) / cap, t, terms.before_cap[x] / cap);
    }
    errors(d_a, t, change, capped, key.d_a, key.shared_a);
  }
};

}  // namespace attest
