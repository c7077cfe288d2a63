// SPDX-License-Identifier: Apache-2.0
// What one call of attention costs, by the way in which it is computed.
//
// Adding a way is adding one file to bench/cost/: write the functions, and under them
//   ATTEST_ATTENTION_COST(mine, {.name = "mine", .summary = "...", .tile = {...}, .forward = ...});
#pragma once

#include <string>
#include <vector>

#include "attest/problem.hpp"
#include "bench/cost/pairs.hpp"

namespace attest {

/// Floating-point operations. + - * / and each exp, log, tanh, sqrt count one, so that a
/// multiply-add counts two; comparisons, conversions and the tables of RoPE count nothing. In
/// double: a training run of GPT-3 passes 2^63.
struct Flops {
  double matrix = 0;   ///< products of matrices: 2 m n k
  double softmax = 0;  ///< exp, sums, maxima, normalisation
  double other = 0;    ///< scale, softcap, ALiBi, bias, RoPE, sums of partial sums
  double total() const { return matrix + softmax + other; }
  Flops& operator+=(const Flops& more) {
    matrix += more.matrix, softmax += more.softmax, other += more.other;
    return *this;
  }
  friend Flops operator+(Flops a, const Flops& b) { return a += b; }
  friend Flops operator*(double n, Flops a) { return {n * a.matrix, n * a.softmax, n * a.other}; }
  bool operator==(const Flops&) const = default;
};

struct AttentionCost {
  Flops flops;
  double bytes = 0;        ///< moved to and from memory at least
  double extra_bytes = 0;  ///< at the peak, beyond the tensors of the call
  double saved_bytes = 0;  ///< kept from forward to backward beyond q, k, v and o
};

struct AttentionCostModel {
  std::string name;
  std::string summary;
  PairTile tile;
  /// Of a call of one thread. Exact but for maxima: an online softmax is charged for one that moves
  /// in every tile.
  AttentionCost (*forward)(const AttentionProblem&, const PairCounts&) = nullptr;
  AttentionCost (*backward)(const AttentionProblem&, const PairCounts&) = nullptr;
};

/// Sorted by name, whatever the link order.
const std::vector<AttentionCostModel>& attention_cost_models();
const AttentionCostModel* find_attention_cost_model(std::string_view name);
bool register_attention_cost(AttentionCostModel model);

#define ATTEST_ATTENTION_COST(identifier, ...)                    \
  [[maybe_unused]] static const bool identifier##_cost_is_known = \
      ::attest::register_attention_cost(::attest::AttentionCostModel __VA_ARGS__)

/// The cost of a problem of Operation::forward, backward or decode. The error is one line.
Result<AttentionCost> attention_cost(const AttentionCostModel& model,
                                     const AttentionProblem& problem);

/// Bytes of the tensors that a call reads and writes, each once: nothing moves less. Keys and
/// values that no query sees count too.
double compulsory_bytes(const AttentionProblem& problem);

/// What the files of this folder share: bytes of an element of the computation (f32, f64 for f64),
/// query heads that share a key/value head, and the operations of turning one row by RoPE with
/// `per_pair` each, 0 without it.
double compute_bytes(const AttentionProblem& problem);
double heads_per_kv_head(const AttentionProblem& problem);
double rotation_flops(const AttentionProblem& problem, double per_pair);

}  // namespace attest
