// SPDX-License-Identifier: Apache-2.0
// The constants that the formulas of docs/tolerance.md read, derived from the declared precision
// and from what the problem makes a kernel compute.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "attest/declaration.hpp"
#include "attest/problem.hpp"

namespace attest {

/// A sum of n independent roundings exceeds lambda times its standard deviation with probability
/// below 2 exp(-lambda^2/2) = 6.7e-4 even if each were of the largest size.
inline constexpr double kLambda = 4;

/// A rotated channel errs by 3/2 u_rope (|x cos| + |y sin|), at most sqrt 2 times the norm of its
/// pair; q and k both do. See docs/tolerance.md, RoPE.
inline constexpr double kRopeBound = 4.2426406871192857;  // 3 sqrt 2

struct Arithmetic {
  PrecisionProfile profile;
  double u = 0;             ///< profile.u_acc
  bool worst_case = false;  ///< truncating accumulator: g(n) = c u n, nothing is lost in "small"
                            ///< addends, T_S = T_M
  double head_dim = 0;
  double softcap = 0;  ///< 0: none
  bool has_bias = false, has_alibi = false, alibi_inside = false;
  bool has_rope = false, has_dropout = false;
  double u_rope = 0;              ///< 0 without RoPE
  double keep_factor = 1;         ///< F = 1/(1 - p_drop)
  double keep_error = 0;          ///< relative error of F as a kernel computes it
  double u_lse = 0, eta_lse = 0;  ///< type of lse: f32, f64 for f64 problems
  bool lse_narrows = false;       ///< that type is narrower than the accumulator
};

Arithmetic arithmetic_of(const AttentionProblem& problem, const PrecisionProfile& profile);

/// g(n) = c_a u min(n, lambda sqrt(n kappa)); c_a u n in worst-case mode.
inline double g(const Arithmetic& arithmetic, double n, double kappa = 1) {
  const double steps = arithmetic.worst_case ? n : std::min(n, kLambda * std::sqrt(n * kappa));
  return arithmetic.profile.c_acc * arithmetic.u * steps;
}

/// hu(x): half an ulp of |x| in the format with unit roundoff u and half of its smallest subnormal
/// eta.
inline double half_ulp(double x, double u, double eta) {
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(x) & 0x7ff0'0000'0000'0000u;
  return std::max(u * std::bit_cast<double>(exponent), eta);
}

/// The factor that R running-max updates put on e_exp in Delta: each multiplies the accumulator by
/// one more exp, and their errors are independent.
inline double rescale_steps(const Arithmetic& arithmetic, double max_updates) {
  return arithmetic.worst_case ? max_updates : std::min(max_updates, 2 * std::sqrt(max_updates));
}

}  // namespace attest
