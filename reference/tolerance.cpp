// SPDX-License-Identifier: Apache-2.0
#include "reference/tolerance.hpp"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

double square(double x) { return x * x; }

/// T = T_pre + hu(|exact| + T_pre).
double rounded_out(double t_pre, double exact, double u_out, double eta_out) {
  return t_pre + half_ulp(std::fabs(exact) + t_pre, u_out, eta_out);
}

}  // namespace

double merge_error(const Arithmetic& a, double keys, double lse) {
  if (!a.profile.lse_merged || keys <= 1) return 0;
  const double steps = 3 * std::fabs(lse) + 5 * std::log(keys) + 4;
  return a.profile.c_acc * a.u * steps + 2 * a.profile.e_exp;
}

bool is_nonlinear(const RowSums& row) { return row.growth > 0.02 || row.max_p_delta > 0.05; }

namespace {

/// Relative error that all keys of a row share.
double shared_error(const Arithmetic& a, const RowSums& row) {
  return a.keep_error + merge_error(a, row.n + (row.has_sink ? 1 : 0), row.lse);
}

/// What exp flushes to 0.
double lost_mass(const Arithmetic& a, const RowSums& row, const ChannelSums& sums, std::size_t c) {
  const double o = std::fabs(sums.o[c]);
  return a.profile.eta_exp / row.l * (sums.distance[c] + (row.has_sink ? o : 0));
}

}  // namespace

ChannelError channel_error(const Arithmetic& a, const RowSums& row, const ChannelSums& sums,
                           std::size_t c) {
  const double u = a.u, u2c2 = square(a.profile.c_acc * u), u_in = a.profile.u_in;
  const double o = std::fabs(sums.o[c]), X = sums.abs_sum[c], W2 = sums.square_sum[c];
  const double n_c = row.n - sums.num_small[c], kappa = row.kappa;
  ChannelError error;
  error.mixed = g(a, n_c + 2, kappa) * X + sums.abs_small[c] +
                (g(a, row.n_l + 2, kappa) + row.small_l) * o + 3 * u * o +
                lost_mass(a, row, sums, c) + u_in * X + shared_error(a, row) * o;
  error.variance = u2c2 * ((n_c * kappa / 2 + 3) * (o * o + W2) + W2) +
                   square(u) * (row.n_l * kappa / 2 + 3) * o * o + square(u_in) * W2;
  return error;
}

Tolerance tolerance_o(const Arithmetic& a, const RowSums& row, const ChannelSums& sums,
                      std::size_t c, double unit) {
  const PrecisionProfile& profile = a.profile;
  const double u = a.u, u_in = profile.u_in;
  const double o = std::fabs(sums.o[c]), X = sums.abs_sum[c];
  const ChannelError error = channel_error(a, row, sums, c);
  // Each product, the division by l and the dropout factor may underflow; so may v on its way in.
  const double underflow = 4 * profile.eta_acc * (row.n + 2) + profile.eta_in * a.keep_factor;

  const double reach = row.has_sink ? std::max(sums.reach[c], o) : sums.reach[c];
  const double E_soft = std::min(sums.spread[c] + row.sink_spread * o, reach);
  // Where any key may take over, what is rounded is no longer weighted by p: an average of |x| is
  // at most E_soft + |o|, and max |x| <= reach + |o|.
  const bool may_be_taken_over = row.is_uncertain || E_soft == reach;
  const double beyond = may_be_taken_over ? std::max(E_soft + o - X, 0.0) : 0;
  const double rounded = g(a, row.n - sums.num_small[c] + 2, row.kappa) + u_in + profile.u_p;
  const double mixed = E_soft + sums.rounding[c] + error.mixed + rounded * beyond;
  const double mixed_pre = mixed * unit + underflow;

  Tolerance tolerance;
  const double exact = sums.o[c] * unit;
  tolerance.mixed = rounded_out(mixed_pre, exact, profile.u_out, profile.eta_out);
  tolerance.stat = tolerance.mixed;
  if (a.worst_case || is_nonlinear(row)) return tolerance;

  const double V1 = sums.noise_variance[c] + square(row.sink_noise * o);
  const double variance = V1 + sums.rounding_variance[c] + error.variance;
  if (variance < kSmallestVariance) return tolerance;
  const double along =
      (2 * u + 3 * u_in) * std::fabs(sums.along_scale[c]) + 2 * u * std::fabs(sums.along_alibi[c]);
  const double stat = kLambda * std::sqrt(variance) + along + std::fabs(sums.small[c]) +
                      row.small_l * o + (3 * u + u_in + shared_error(a, row)) * o +
                      lost_mass(a, row, sums, c);
  tolerance.stat = rounded_out(stat * unit + underflow, exact, profile.u_out, profile.eta_out);
  return tolerance;
}

Tolerance tolerance_lse(const Arithmetic& a, const RowSums& row) {
  const PrecisionProfile& profile = a.profile;
  const double u = a.u, kappa = row.kappa, lse = std::fabs(row.lse);
  const double lost = row.n * profile.eta_exp / row.l;
  const double steps =
      u * (2 * lse + 2 * std::fabs(row.m) + 3 * std::fabs(std::log(row.l))) + 2 * u;
  const double rounded_l = profile.l_from_rounded ? -std::log1p(-std::min(0.9, row.eps_sum)) : 0;
  const double mixed =
      row.growth + rounded_l + g(a, row.n_l + 2, kappa) + row.small_l + lost + steps;

  Tolerance tolerance;
  const auto stored = [&](double t_pre) {
    return a.lse_narrows ? rounded_out(t_pre, row.lse, a.u_lse, a.eta_lse) : t_pre;
  };
  tolerance.mixed = stored(mixed);
  tolerance.stat = tolerance.mixed;
  if (a.worst_case || is_nonlinear(row)) return tolerance;

  const double V_l = std::max(row.noise_square, row.noise_grouped);
  const double VP_l = profile.l_from_rounded ? row.eps_grouped : 0;
  const double variance = V_l + square(u) * (row.n_l * kappa / 2 + 3) + VP_l;
  const double along = (2 * u + 3 * profile.u_in) * std::fabs(row.along_scale) +
                       2 * u * std::fabs(row.along_alibi) + kLambda * row.coherent;
  const double stat = kLambda * std::sqrt(variance) + steps + row.small_l + lost + along;
  tolerance.stat = stored(stat);
  return tolerance;
}

double tolerance_lse_sink(const Arithmetic& a, double sink) {
  return rounded_out(4 * a.u * std::fabs(sink), sink, a.u_lse, a.eta_lse);
}

double tolerance_mean(const Arithmetic& a, double n, double abs_mean) {
  const double weights = a.profile.u_p + a.profile.u_in + 4 * a.u + g(a, n + 2, n);
  return rounded_out(weights * abs_mean + a.profile.eta_in, abs_mean, a.profile.u_out,
                     a.profile.eta_out);
}

}  // namespace attest
