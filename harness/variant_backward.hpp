// SPDX-License-Identifier: Apache-2.0
// The backward pass in plain double with every step open to be done wrong, as variant.hpp has the
// forward pass. What it starts from, o and lse, is that of an honest forward.
//
// A mistake edits the problem or the values that the kernel's backward believes in, or replaces
// steps.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "harness/variant.hpp"

namespace attest {

/// A query row on its way past its keys.
struct BackwardRow {
  RowAt at;
  std::vector<double> d_o;
  double lse = 0, d_lse = 0;
  double delta = 0;     ///< of a row that is not empty
  bool silent = false;  ///< dO and dLSE are 0: it adds nothing
  bool empty = true;    ///< no key so far
};

/// A key that takes part in a row.
struct BackwardPair {
  const BackwardRow& row;
  std::int64_t j = 0, kpos = 0;
  ScoreParts parts;
  double p = 0, factor = 1;  ///< P and the dropout factor
  double slope = 1;          ///< of the softcap
  double d_p = 0, d_z = 0, d_a = 0;
  // What enters the sums: times dO, k, q, 1 and the ALiBi distance.
  double to_v = 0, to_q = 0, to_k = 0, to_bias = 0, to_slope = 0;
};

/// The gradients, by Gradient, in the shape of their inputs; a NaN tolerance: not predicted.
struct GradientPrediction {
  struct Tensor {
    std::array<std::int64_t, 4> shape{};
    std::vector<double> value, tolerance;
    std::vector<std::uint8_t> unwritten;
  };
  std::array<Tensor, kNumGradients> of;
  Tensor& operator[](Gradient gradient) { return of[static_cast<std::size_t>(gradient)]; }
};

struct BackwardVariant {
  const AttentionProblem& told;  ///< the call as it was made
  AttentionProblem problem;      ///< that the mistaken backward believes in
  AttentionInputs inputs;
  const PrecisionProfile& profile;
  const Prediction& forward;  ///< honest o and lse

  // Steps; an empty one is as defined. `right` is what the definition has in that place.
  std::function<std::int64_t(std::int64_t h)> kv_head;
  std::function<bool(const PairAt&, const BackwardRow&)> sees;
  std::function<bool(const BackwardRow&, double z)> takes_part;
  std::function<void(std::vector<double>& d_o)> load_d_o;
  std::function<RowAt(const RowAt&)> o_row;  ///< the row whose o delta is taken of
  std::function<double(const BackwardRow&, double right)> delta;
  std::function<double(const RowAt&, double right)> d_lse;
  std::function<double(const BackwardRow&, double z)> weight;
  std::function<double(const PairAt&, double right)> factor;
  std::function<double(const ScoreParts&)> cap_slope;
  std::int64_t d_p_channels = -1;  ///< that dP sums over; -1: all
  std::function<double(const BackwardPair&, double right)> distance;  ///< of ALiBi
  std::function<void(BackwardPair&)> pair;                            ///< at its end
  std::function<double(const BackwardRow&, double p_sink)> d_sink;
  std::optional<double> d_q_factor, d_k_factor;  ///< nullopt: the scale
  /// How often a row counts in dK and dV, and in dBias.
  std::function<double(const RowAt&)> share_in_keys, share_in_bias;
  bool last_stays_in_bias = false;  ///< dBias is that of the last pair, not the sum

  // RoPE: turning dQ and dK back.
  double turn_q = -1, turn_k = -1;  ///< times the angle; 0: not turned
  bool turn_in_halves = false;      ///< whatever the pairing
  std::function<std::int64_t(const Rows&, std::int64_t row, std::int64_t position)>
      query_angle_position, key_angle_position;

  std::function<void(GradientPrediction&)> last;
};

GradientPrediction predict(const BackwardVariant& variant);

}  // namespace attest
