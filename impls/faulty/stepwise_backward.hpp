// SPDX-License-Identifier: Apache-2.0
// The backward pass of the stepwise kernel, taken apart as its forward is. It is right as it
// stands; a planted fault overrides one step here, or one of those that it shares with forward.
//
// Every sequence and key/value head is differentiated by itself. The query rows of the heads that
// share it go through in tiles, and each row meets the keys that it may see in blocks. P comes from
// the scores and the lse that forward wrote, delta from its o. P and dS are rounded to the storage
// type before they enter products. dK and dV are summed over all rows of the group and rounded
// once. dBias takes a second pass, in which one thread owns all that is summed into an entry.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "impls/faulty/stepwise.hpp"

namespace attest::faulty {

/// One query row on its way through the blocks.
template <class C>
struct GradientRow {
  Query query;
  std::vector<C> q, d_o;  ///< q turned to its position
  C lse, d_lse;
  C delta;             ///< of a row that is not empty
  std::vector<C> d_q;  ///< not yet scaled, nor turned back
  C d_slope;
  bool silent;  ///< dO and dLSE are 0: it adds nothing, not even 0 * Inf
  bool empty;   ///< no key so far
};

/// A key of the block that a row sees.
template <class C>
struct Pair {
  std::int64_t n;   ///< key number within the block
  C p, kept;        ///< P and the dropout factor
  C weight;         ///< P times the factor, as its product with dO takes it
  C d_p, d_z, d_a;  ///< of P, of the score, of scale q.k
  C d_s;            ///< d_a as its products with q and k take it
};
template <class C>
using Pairs = std::vector<Pair<C>>;

/// Of one sequence and key/value head, by the number of the key; dK not yet scaled, nor turned
/// back.
template <class C>
struct KeyGradients {
  std::vector<C> d_k, d_v;
};

/// What each sequence and query head adds to the gradients of numbers per head, [n, h].
struct HeadGradients {
  std::vector<double> d_slope, d_sink;
};

template <class Storage>
class StepwiseBackward : public Stepwise<Storage> {
 public:
  using C = Compute<Storage>;
  using Stepwise<Storage>::kNone;
  using Visit = std::function<void(GradientRow<C>&, const Pairs<C>&, const Block<C>&)>;
  using EndOfRow = std::function<void(GradientRow<C>&)>;

  void serve_backward(const attest_attention& asked, const Sizes& of_call, const Context& given);

  // --- the call, its sequences and heads --------------------------------------------------------
  virtual void run_backward();
  virtual Sequence backward_sequence(std::int64_t n) const;
  /// 0 in every row of dQ, dK and dV: padding keeps it.
  virtual void clear_gradients() const;
  virtual void differentiate(const Sequence& at, std::int64_t g, HeadGradients& heads) const;
  /// Number n of the query heads that share key/value head g.
  virtual std::int64_t group_head(std::int64_t g, std::int64_t n) const;
  virtual void differentiate_head(const Sequence& at, std::int64_t h, KeyGradients<C>& keys,
                                  HeadGradients& heads) const;
  /// Every real row of a head, in tiles, past the keys that it sees.
  virtual void visit_head(const Sequence& at, std::int64_t h, const Visit& visit,
                          const EndOfRow& end_of_row) const;
  virtual void visit_tile(const Sequence& at, std::int64_t h, std::int64_t first,
                          std::int64_t count, const Visit& visit, const EndOfRow& end_of_row) const;

  // --- a row ------------------------------------------------------------------------------------
  virtual GradientRow<C> start_row(const Query& q) const;
  virtual void load_d_out(const Query& q, C* to) const;
  virtual void load_out(const Query& q, C* to) const;
  virtual C lse(const Query& q) const;
  virtual C d_lse(const Query& q) const;
  virtual bool silent(const GradientRow<C>& row) const;
  virtual C delta(const GradientRow<C>& row) const;

  // --- pairs ------------------------------------------------------------------------------------
  virtual Span backward_keys(const Query& first, const Query& last) const;
  virtual Pairs<C> pairs(GradientRow<C>& row, const Block<C>& block) const;
  virtual bool visible_in_backward(const Query& q, const Key& k) const;
  /// Whether a key of this score has a gradient.
  virtual bool takes_part(const GradientRow<C>& row, C z) const;
  virtual C weight_again(const GradientRow<C>& row, C z) const;
  /// 0 where the pair was dropped.
  virtual C dropout_factor(const Query& q, const Key& k) const;
  virtual C d_weight(const GradientRow<C>& row, C kept, const C* value) const;
  virtual C d_score(const GradientRow<C>& row, C p, C d_p) const;
  virtual C through_softcap(const GradientRow<C>& row, const Key& k, const C* key, C d_z) const;
  virtual C round_p(C p) const;
  virtual C round_d_s(C d_s) const;

  // --- sums -------------------------------------------------------------------------------------
  virtual void add_d_q(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const;
  virtual void add_d_k(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
                       KeyGradients<C>& keys) const;
  virtual void add_d_v(const GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block,
                       KeyGradients<C>& keys) const;
  virtual void add_d_slope(GradientRow<C>& row, const Pairs<C>& pairs, const Block<C>& block) const;
  /// What a slope of 1 adds to the score.
  virtual C alibi_distance(const Query& q, const Key& k) const;
  /// What a row adds to dSink.
  virtual C d_sink(const GradientRow<C>& row) const;
  /// dBias[b, h, :, :], the sum over every head that reads it.
  virtual void bias_plane(std::int64_t b, std::int64_t h) const;
  virtual void add_d_bias(C& sum, C d_z) const;

  // --- the end ----------------------------------------------------------------------------------
  virtual C d_q_factor() const;
  virtual C d_k_factor() const;
  virtual void turn_back(C* row, std::int64_t position) const;
  virtual void turn_d_q(const Query& q, C* d_q) const;
  virtual void turn_d_k(const Key& k, C* d_k) const;
  virtual void finish_d_q(GradientRow<C>& row) const;
  virtual void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const;
  virtual void write_d_q(const Query& q, const C* d_q) const;
  virtual void write_d_k(const Sequence& at, std::int64_t g, const Key& k, const C* d_k) const;
  virtual void write_d_v(const Sequence& at, std::int64_t g, const Key& k, const C* d_v) const;
  virtual void write_d_bias(std::int64_t b, std::int64_t h, const std::vector<C>& sums) const;
  virtual void write_d_slopes(const HeadGradients& heads) const;
  virtual void write_d_sink(const HeadGradients& heads) const;

 protected:
  using Stepwise<Storage>::context;
  using Stepwise<Storage>::problem;
  using Stepwise<Storage>::sizes;

  /// The batch entry of each sequence.
  std::vector<std::int64_t> batch_of_sequences() const;

  std::vector<Sequence> sequences;
};

extern template class StepwiseBackward<double>;
extern template class StepwiseBackward<float>;
extern template class StepwiseBackward<F16>;
extern template class StepwiseBackward<Bf16>;

}  // namespace attest::faulty
