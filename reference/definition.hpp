// SPDX-License-Identifier: Apache-2.0
// The definition in multiprecision, behind plain types: the only way the rest of the project
// reaches it. The formulas are in attention.hpp, on a number type; definition.cpp is the one
// translation unit that includes Boost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/expected.hpp"

namespace attest {

/// One number as the sum of two doubles (error below 2^-104 relative), and to 20 significant
/// digits.
struct ExactNumber {
  double high = 0, low = 0;
  std::string digits;
};

struct ExactRow {
  RowKind kind = RowKind::ordinary;
  std::vector<ExactNumber> o;  ///< [Dv]
  ExactNumber lse;
};

/// Row (b, h, i) by the definition, at 50 or 100 decimal digits. `with_digits` fills
/// ExactNumber::digits.
ExactRow definition_row(const AttentionProblem& problem, const AttentionInputs& inputs,
                        std::int64_t b, std::int64_t h, std::int64_t i, int decimal_digits = 50,
                        bool with_digits = false);
/// The same on cpp_bin_float<50>: a second opinion for tests.
ExactRow definition_row_second_opinion(const AttentionProblem& problem,
                                       const AttentionInputs& inputs, std::int64_t b,
                                       std::int64_t h, std::int64_t i);

/// All gradients of docs/semantics.md section 5 at 50 digits, for inputs.d_o and inputs.d_lse. NaN
/// where a row that is not judged by value has a part in it.
RealTensors<ExactNumber> definition_gradients(const AttentionProblem& problem,
                                              const AttentionInputs& inputs);

/// Row (b, h, i) of y of a rotary embedding alone, at 50 digits.
std::vector<ExactNumber> definition_rope_row(const AttentionProblem& problem,
                                             const AttentionInputs& inputs, std::int64_t b,
                                             std::int64_t h, std::int64_t i);

/// Every intermediate of one row, for `attest explain`. Entries of invisible keys hold what they
/// would have been.
struct RowTrace {
  RowKind kind = RowKind::ordinary;
  std::int64_t qpos = 0;
  struct Key {
    std::int64_t j = 0, kpos = 0;
    bool base = true, band = true, range = true, segment = true, mask = true, blocks = true,
         visible = true;
    double dot = 0, scaled = 0, capped = 0, alibi = 0, bias = 0, score = 0, weight = 0,
           keep_factor = 1;
  };
  std::vector<Key> keys;
  double sink = 0;
  bool has_sink = false;
  ExactRow exact;
};
RowTrace trace_row(const AttentionProblem& problem, const AttentionInputs& inputs, std::int64_t b,
                   std::int64_t h, std::int64_t i);

/// visible(i, j) of docs/semantics.md section 3 for one (b, h): [q_len * kv_len], 1 = visible.
/// Includes bias = -inf.
std::vector<std::uint8_t> visible_set(const AttentionProblem& problem,
                                      const AttentionInputs& inputs, std::int64_t b,
                                      std::int64_t h);
/// Query rows inside some query range, key rows inside some key range, for sequence b: 1 = real, 0
/// = never read.
std::vector<std::uint8_t> real_query_rows(const AttentionProblem& problem, std::int64_t b);
std::vector<std::uint8_t> real_key_rows(const AttentionProblem& problem, std::int64_t b);
/// qpos of every query row and kpos of every key row of sequence b (0 for rows outside their
/// range).
std::vector<std::int64_t> query_positions(const AttentionProblem& problem, std::int64_t b);
std::vector<std::int64_t> key_positions(const AttentionProblem& problem, std::int64_t b);

/// T5 bucket of relative position r = kpos - qpos, decided in integers (docs/semantics.md section
/// 4).
std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance,
                       bool bidirectional);
/// Default ALiBi slope of head h of H.
double alibi_slope(std::int64_t h, std::int64_t num_heads);
/// cos and sin of pos * base'^(-2t/R) / scale, each the sum of two doubles good to 2^-100; cached.
struct RopeAngle {
  double cos_high, cos_low, sin_high, sin_low;
};
RopeAngle rope_angle(const AttentionProblem& problem, std::int64_t position, std::int64_t t);
/// The same for every pair t in [0, R/2): one look-up per row.
std::vector<RopeAngle> rope_angles(const AttentionProblem& problem, std::int64_t position);

}  // namespace attest
