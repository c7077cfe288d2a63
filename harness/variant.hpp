// SPDX-License-Identifier: Apache-2.0
// The forward pass in plain double with every step open to be done wrong: what a kernel with a
// known mistake would give. Written for diagnosis alone; no verdict is computed from it.
//
// A mistake edits the problem or the values that the kernel believes in, or replaces steps. Rows
// that are never read hold NaN, as they do in the call that it is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "attest/problem.hpp"
#include "reference/visible.hpp"

namespace attest {

/// A query row: its sequence, heads, position.
struct RowAt {
  std::int64_t b = 0, h = 0, kv = 0, i = 0;
  std::int64_t qpos = 0;
  const Rows* rows = nullptr;
  const Segment* segment = nullptr;  ///< nullptr: a padding row
};

/// A pair of a real query row and any key row.
struct PairAt {
  const RowAt& row;
  std::int64_t j = 0;
  std::int64_t kpos = 0;  ///< j where the key lies outside every range
  bool seen = false;  ///< by the definition, on the problem that the mistaken kernel believes in
  bool in_range = false;  ///< the key is a real one of the row's own segment
};

struct ScoreParts {
  double dot = 0, scale = 0, alibi = 0, bias = 0;
};

/// The keys of one row and their weights, before they are used.
struct WeighedRow {
  std::vector<std::int64_t> keys;
  std::vector<double> z;
  std::vector<double> weight;   ///< exp(z - max)
  std::vector<double> dropout;  ///< f_ij of each
  double max = 0;
  double sink = 0;         ///< -inf: none
  double sum = 0;          ///< of the weights and of exp(sink - max)
  double extra_error = 0;  ///< relative, of the weights, beyond what the profile says
};

enum class RowOutcome : std::uint8_t { ordinary, empty, padding };

struct RowOutput {
  RowOutcome outcome = RowOutcome::ordinary;
  std::vector<double> o;
  double lse = 0;
  double max = 0, sum = 0;  ///< of an ordinary row
  bool o_unwritten = false, lse_unwritten = false;
  bool o_unknown = false, lse_unknown = false;  ///< the mistake leaves open what comes out
};

/// What the outputs would be, in logical row-major order, and how far a kernel that makes just this
/// mistake may be off it. Tolerances are generous: a diagnosis accuses nobody. A NaN tolerance: not
/// predicted.
struct Prediction {
  std::vector<double> o, lse, o_tolerance, lse_tolerance;
  std::vector<std::uint8_t> o_unwritten, lse_unwritten;  ///< [B, Hq, Lq]
};

struct Variant {
  const AttentionProblem& told;  ///< the call as it was made
  AttentionProblem problem;      ///< that the mistaken kernel believes in
  AttentionInputs inputs;
  const PrecisionProfile& profile;

  // Steps; an empty one is as defined.
  std::function<std::int64_t(std::int64_t h)> kv_head;
  std::function<bool(const PairAt&)> sees;
  std::function<double(const double* q, const double* k, std::int64_t channels)> dot;
  std::function<double(const PairAt&, const ScoreParts&)> score;
  std::function<void(const RowAt&, WeighedRow&)> weigh;
  std::function<double(double sum, double product)> accumulate;  ///< o before it is divided
  std::function<void(const RowAt&, RowOutput&)> finish;
  std::function<void(Prediction&)> last;

  // RoPE: what is rotated, which way, and by which position (given the row and the right one).
  bool rotate_q = true, rotate_k = true, rotate_v = false;
  bool query_offset_in_angles = true;  ///< false: the angle of a query leaves out its offset
  double rotation_sign = 1;
  std::function<std::int64_t(const Rows&, std::int64_t row, std::int64_t position)>
      query_angle_position, key_angle_position;
};

/// z of the definition from its parts.
double defined_score(const AttentionProblem& problem, const ScoreParts& parts);

Prediction predict(const Variant& variant);

}  // namespace attest
