// SPDX-License-Identifier: Apache-2.0
// What the oracle says of one problem: value, certified radius and tolerance of every output
// element.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "attest/problem.hpp"

namespace attest {

enum class RowKind : std::uint8_t {
  ordinary,
  empty,       ///< no visible key: o and lse are the convention of the problem, exactly
  empty_sink,  ///< no visible key but a sink: o = 0 exactly, lse = sink with T = 4u|sink| + half an
               ///< ulp
  padding,     ///< outside every query range: o = 0, lse = -inf, exactly
  lowest_only,  ///< every key carries a finite mask value: o finite and within [o_low, o_high], or
                ///< the empty-row value
  unspecified,  ///< a visible NaN or Inf: not judged by value
  outside_domain,  ///< beyond the range of the declared accumulator (docs/semantics.md section 2,
                   ///< Domain)
};

/// One output tensor, elements in logical row-major order.
struct ExpectedTensor {
  std::vector<double> value;
  std::vector<double> low;  ///< value + low is the expected number; all 0 unless the subject is f64
  std::vector<double> radius;   ///< |value + low - exact| <= radius, certified
  std::vector<double> t_mixed;  ///< T_M of docs/tolerance.md
  std::vector<double> t_stat;   ///< T_S; the tolerance is min(t_mixed, t_stat)
};

struct Expected {
  ExpectedTensor o;    ///< [B, Hq, Lq, Dv]
  ExpectedTensor lse;  ///< [B, Hq, Lq], natural logarithm; +-inf where the convention says so
  std::array<ExpectedTensor, kNumGradients> gradients;  ///< by Gradient; where inputs.d_o is there
  std::vector<RowKind> rows;                            ///< [B, Hq, Lq]
  std::vector<double> o_low, o_high;  ///< [B, Hq, Lq, Dv] where some row is lowest_only, else empty
  /// sum_j p s t (v - o): the direction in which a wrong temperature moves o; for the bias test.
  /// [B, Hq, Lq, Dv]
  std::vector<double> temperature;
  /// max_j p_j Delta_j per row; above 0.1 the row says little (docs/tolerance.md section 9).
  std::vector<double> vagueness;
  bool has_tolerance = false;
};

struct OracleOptions {
  bool tolerance = true;  ///< false: values and radius alone
  bool temperature = false;
};

/// The fast oracle: fp64 for f32, f16 and bf16 problems, double-double for f64. Never throws on
/// legal problems.
Expected expect(const AttentionProblem& problem, const AttentionInputs& inputs,
                const PrecisionProfile& profile, const OracleOptions& options = {});

/// The SIMD target that expect() runs on here, e.g. "AVX3_DL".
std::string oracle_simd_target();

}  // namespace attest
