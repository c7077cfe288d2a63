// SPDX-License-Identifier: Apache-2.0
// What the laws share. A law says the same thing twice: as the call of the case, and as other calls
// whose results must combine to the same. Each call is allowed its own derived tolerance, so a law
// holds for every honest kernel; a kernel that breaks it is wrong in one of the calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"

namespace attest {

/// A problem with its values, to be cut and permuted.
struct Restatement {
  AttentionProblem problem;
  AttentionInputs inputs;
};

/// The problem as it stands, without literal values: those are in the inputs.
Restatement restate(const AttentionProblem& problem, const AttentionInputs& inputs);

/// Rows of the result are given by the rows listed, in that order; a row may stand twice. Bias,
/// mask and keep follow; an axis that broadcasts stays as it is. Blocks, lengths, packing and
/// positions are the caller's affair.
void pick_keys(Restatement& call, const std::vector<std::int64_t>& keys);
void pick_queries(Restatement& call, const std::vector<std::int64_t>& queries);
/// Blocks, slopes, lengths, offsets and prefixes follow too.
void pick_batches(Restatement& call, const std::vector<std::int64_t>& batches);
/// Query heads, with their slopes, sinks and blocks.
void pick_heads(Restatement& call, const std::vector<std::int64_t>& heads);
void pick_kv_heads(Restatement& call, const std::vector<std::int64_t>& kv_heads);

/// The channels of q, k or v listed, in that order.
void pick_channels(Dense<double>& tensor, const std::vector<std::int64_t>& channels);

/// Slopes become powers of two from 2^-8 to 1: their products with positions are then exact.
void round_slopes(Dense<double>& slopes);

/// The same with one entry of the axis repeated to `extent` where it broadcasts. Axes: b, h, q, k.
template <class T>
void store_axis(Dense<T>& tensor, int axis, std::int64_t extent) {
  if (!tensor.present || tensor.shape[static_cast<std::size_t>(axis)] == extent) return;
  auto shape = tensor.shape;
  shape[static_cast<std::size_t>(axis)] = extent;
  Dense<T> stored(shape);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i)
        for (std::int64_t j = 0; j < shape[3]; ++j)
          stored.values[flat++] = tensor.values[tensor.broadcast_index(b, h, i, j)];
  tensor = std::move(stored);
}

/// 0, 1, ... count - 1.
std::vector<std::int64_t> counting(std::int64_t count);
/// first, first + 1, ... last - 1.
std::vector<std::int64_t> rows_between(std::int64_t first, std::int64_t last);
/// A permutation of [0, count) chosen by the seed; not the identity where count > 1.
std::vector<std::int64_t> shuffled(const AttentionProblem& problem, std::uint64_t tag,
                                   std::int64_t count);
/// A number in [0, count) chosen by the seed.
std::int64_t chosen(const AttentionProblem& problem, std::uint64_t tag, std::int64_t count);

/// Small enough that a law costs about a millisecond, nothing empty, k and v of every sequence
/// stored apart, and the lse asked for where the kernel has one. What adapt functions start with.
AttentionProblem law_sized(AttentionProblem problem, const Declaration& declaration);
/// The answer depends on nothing but what the tensors hold: base=full, no window, no ALiBi, no
/// RoPE.
void drop_positions(AttentionProblem& problem);
bool has_positions(const AttentionProblem& problem);
void drop_ranges(AttentionProblem& problem);
bool has_ranges(const AttentionProblem& problem);

/// Makes dimensions, axes and kinds of the problem those of its inputs. Whether the result is legal
/// and covered by the declaration.
bool settle(Restatement& call, const Declaration& declaration);

/// One call made, and what the oracle allows of it.
struct LawCall {
  AttentionProblem problem;
  Observation seen;
  Expected expected;
  bool generic = false;  ///< T_S alone convicts

  /// A row where one weight may be off by a tenth can still convict, but its passing says nothing
  /// (docs/tolerance.md section 9).
  bool telling(std::size_t row) const { return expected.vagueness[row] <= 0.1; }
};

/// What the comparison may differ by at most: min(T_M, T_S), or T_M where the rows are not
/// exchangeable random numbers.
double allowed_of(const LawCall& call, Output output, std::size_t flat);

/// The case's own call; the result that says why it cannot be used otherwise.
std::optional<CaseResult> first_call(CaseContext& context, const AttentionProblem& problem,
                                     LawCall& call);
/// The call of a restatement that settle() accepted. `generic`: its rows are exchangeable random
/// numbers if those of the case are.
std::optional<CaseResult> further_call(CaseContext& context, const LawCall& base,
                                       const Restatement& restated, bool generic, LawCall& call);

/// Collects what a law says of the elements of one result.
class LawJudge {
 public:
  /// `what` begins the sentence "... gives another o[0,0,1,0]: 0.31 where 0.29 follows from the
  /// call as it was".
  LawJudge(const AttentionProblem& problem, std::string what)
      : problem_(problem), what_(std::move(what)) {}

  /// The law holds where |restated - base| <= allowed. `counts`: passing says something.
  void add(Output output, std::size_t flat, double base, double restated, double allowed,
           bool counts);
  CaseResult finish() &&;

 private:
  const AttentionProblem& problem_;
  std::string what_;
  CaseResult result_;
  double worst_ = -1;
};

/// How rows of a restated call answer rows of the case: row by row, o times a factor, lse plus a
/// shift.
struct Same {
  std::vector<std::int64_t> row_of;      ///< row there of every row here, -1: none; empty: the same
  std::vector<std::int64_t> channel_of;  ///< channel of v there; empty: the same
  double o_factor = 1;                   ///< o here = factor * o there
  std::vector<double> lse_shift;         ///< lse there = lse here + shift, per row; empty: 0
  bool compares_o = true, compares_lse = true;
  /// The law holds but for a constant that double cannot hold: by as much as the oracle's two
  /// answers differ, more is allowed.
  bool bends = false;
};
void compare_same(const LawCall& base, const LawCall& other, const Same& same, LawJudge& judge);

/// The whole check of a law with one restated call.
CaseResult check_same(CaseContext& context, const AttentionProblem& problem, Restatement restated,
                      const Same& same, bool generic, const std::string& what);

/// `not_judged`, as the law cannot be said with what is declared or with these values.
CaseResult not_sayable();

}  // namespace attest
