// SPDX-License-Identifier: Apache-2.0
#include "harness/low_precision.hpp"

#include <algorithm>
#include <cmath>

#include "attest/dtype.hpp"
#include "reference/row_kind.hpp"
#include "reference/score.hpp"
#include "reference/visible.hpp"

namespace attest {

namespace {

/// One query row against every key.
class RowInStorage {
 public:
  RowInStorage(const AttentionProblem& problem, const AttentionInputs& inputs, const Rows& rows,
               std::int64_t b, std::int64_t h, std::int64_t i)
      : p_(problem), in_(inputs), rows_(rows), b_(b), h_(h), i_(i) {}

  void compute(double* o) const;

 private:
  double stored(double value) const { return round_to(p_.dtype, value); }
  std::vector<double> stored(std::vector<double> values) const {
    for (double& value : values) value = stored(value);
    return values;
  }
  double score(std::int64_t j, const std::vector<double>& q, double scale) const;
  double kept(std::int64_t j) const {
    if (!in_.keep.present) return 1;
    return in_.keep.at(b_, h_, i_, j) == 0 ? 0 : 1 / (1 - p_.dropout_p);
  }

  const AttentionProblem& p_;
  const AttentionInputs& in_;
  const Rows& rows_;
  std::int64_t b_, h_, i_;
};

double RowInStorage::score(std::int64_t j, const std::vector<double>& q, double scale) const {
  const std::int64_t query_position = qpos(rows_.of_query(i_), i_);
  const std::int64_t key_position = kpos(rows_.of_key(j), j);
  const std::vector<double> k =
      stored(positioned_row<double>(p_, in_.k, b_, kv_head(p_, h_), j, key_position));
  double z = stored(scale * stored(dot(q, k)));
  const double alibi =
      p_.alibi == AlibiKind::none
          ? 0
          : stored(alibi_term(p_.alibi, slope_at(in_, b_, h_), query_position, key_position));
  if (p_.alibi_inside_softcap) z = stored(z + alibi);
  if (p_.softcap > 0) z = stored(capped(z, p_.softcap));
  if (!p_.alibi_inside_softcap) z = stored(z + alibi);
  return stored(z + bias_at(in_, b_, h_, i_, j));
}

void RowInStorage::compute(double* o) const {
  std::vector<std::int64_t> keys;
  for (const std::int64_t j : visible_keys(p_, in_, rows_, b_, h_, i_))
    if (!bias_hides(in_, b_, h_, i_, j)) keys.push_back(j);
  if (keys.empty()) return;
  const std::vector<double> q =
      stored(positioned_row<double>(p_, in_.q, b_, h_, i_, qpos(rows_.of_query(i_), i_)));
  const double scale = exact_scale<double>(p_);
  std::vector<double> z;
  double most = sink_at(in_, h_);
  for (const std::int64_t j : keys) {
    z.push_back(score(j, q, scale));
    most = std::max(most, z.back());
  }
  double sum = std::exp(sink_at(in_, h_) - most);
  for (const double x : z) sum += std::exp(x - most);
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const double weight = stored(kept(keys[n]) * stored(std::exp(z[n] - most) / sum));
    const std::vector<double> v = read_row<double>(in_.v, b_, kv_head(p_, h_), keys[n]);
    for (std::size_t c = 0; c < v.size(); ++c) o[c] += weight * v[c];
  }
  for (std::int64_t c = 0; c < p_.v_head_dim; ++c) o[c] = stored(o[c]);
}

}  // namespace

std::vector<double> low_precision_output(const AttentionProblem& problem,
                                         const AttentionInputs& inputs) {
  std::vector<double> o(static_cast<std::size_t>(problem.batch * problem.num_heads * problem.q_len *
                                                 problem.v_head_dim));
  double* row = o.data();
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i, row += problem.v_head_dim)
        RowInStorage(problem, inputs, rows, b, h, i).compute(row);
  }
  return o;
}

}  // namespace attest
