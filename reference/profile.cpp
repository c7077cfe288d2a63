// SPDX-License-Identifier: Apache-2.0
#include "reference/profile.hpp"

namespace attest {

Arithmetic arithmetic_of(const AttentionProblem& problem, const PrecisionProfile& profile) {
  Arithmetic arithmetic;
  arithmetic.profile = profile;
  arithmetic.u = profile.u_acc;
  arithmetic.worst_case = profile.c_acc >= 2;
  arithmetic.head_dim = static_cast<double>(problem.head_dim);
  arithmetic.softcap = problem.softcap;
  arithmetic.has_bias = problem.bias != BiasKind::none;
  arithmetic.has_alibi = problem.alibi != AlibiKind::none;
  arithmetic.alibi_inside = arithmetic.has_alibi && problem.alibi_inside_softcap;
  arithmetic.has_rope = problem.rope != RopePairing::none;
  arithmetic.has_dropout = problem.dropout_p > 0;
  // The rotation is a step of the call, so even a kernel that says nothing of it rounds there.
  if (arithmetic.has_rope) arithmetic.u_rope = std::max(profile.u_rope, 2 * profile.u_acc);
  // Keys that go into the cache rotated are stored in between.
  if (problem.cache_rotated) arithmetic.u_rope += limits(problem.dtype).unit_roundoff;
  if (arithmetic.has_dropout) {
    // p_drop rounded (relative p/(1 - p) of the difference), the difference and the quotient.
    arithmetic.keep_factor = 1 / (1 - problem.dropout_p);
    arithmetic.keep_error = profile.u_acc * (problem.dropout_p * arithmetic.keep_factor + 2);
  }
  const DTypeLimits lse_type = limits(problem.dtype == DType::f64 ? DType::f64 : DType::f32);
  arithmetic.u_lse = lse_type.unit_roundoff;
  arithmetic.eta_lse = lse_type.half_min_subnormal;
  arithmetic.lse_narrows = lse_type.unit_roundoff > profile.u_acc;
  return arithmetic;
}

}  // namespace attest
