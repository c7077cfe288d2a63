// SPDX-License-Identifier: Apache-2.0
#include "harness/variant.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/layout.hpp"
#include "reference/alibi.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"

namespace attest {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// What one row costs in rounding, to first order and generously.
struct Errors {
  std::vector<double> score;  ///< of each key's z
  double weight = 0;          ///< relative, of each weight and of the sum
};

class Forward {
 public:
  explicit Forward(const Variant& variant)
      : v_(variant), p_(variant.problem), in_(variant.inputs), u_(variant.profile) {}

  Prediction run();

 private:
  void head(std::int64_t b, std::int64_t h, const Rows& rows);
  void row(const RowAt& at);
  void weigh(const RowAt& at, WeighedRow& row, Errors& errors);
  void average(const WeighedRow& row, const Errors& errors, RowOutput& out);
  std::int64_t query_position(const Rows& rows, std::int64_t i) const;
  std::int64_t key_position(const Rows& rows, std::int64_t j) const;
  void empty(const RowAt& at, double sink, RowOutput& out) const;
  void store(const RowAt& at, const RowOutput& out);
  double sink_of(std::int64_t h) const {
    return in_.sink.present ? in_.sink.at(0, h, 0, 0) : kNone;
  }
  bool in_tables(std::int64_t position) const {
    return position >= tables_.first && position < tables_.first + tables_.count;
  }
  std::vector<double> rotated(const Dense<double>& tensor, std::int64_t b, std::int64_t h,
                              std::int64_t count,
                              const std::function<std::int64_t(std::int64_t)>& position) const;

  const Variant& v_;
  const AttentionProblem& p_;
  const AttentionInputs& in_;
  const PrecisionProfile& u_;
  std::vector<double> q_, k_, values_;  ///< of one head, row-major
  PositionRange tables_;                ///< positions that the call's RoPE tables cover
  bool key_outside_tables_ = false;
  std::vector<double> o_error_;
  double lse_error_ = 0;
  Prediction out_;
};

std::vector<double> rows_of_head(const Dense<double>& tensor, std::int64_t b, std::int64_t h,
                                 std::int64_t count) {
  if (count == 0 || tensor.shape[3] == 0) return {};
  const auto first = tensor.values.begin() + static_cast<std::ptrdiff_t>(tensor.index(b, h, 0, 0));
  return {first, first + count * tensor.shape[3]};
}

std::vector<double> Forward::rotated(
    const Dense<double>& tensor, std::int64_t b, std::int64_t h, std::int64_t count,
    const std::function<std::int64_t(std::int64_t)>& position) const {
  std::vector<double> rows = rows_of_head(tensor, b, h, count);
  const std::int64_t width = tensor.shape[3];
  const std::int64_t pairs = std::min(effective_rope_dim(p_), width) / 2;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::vector<RopeAngle> angles = rope_angles(p_, position(r));
    for (std::int64_t t = 0; t < pairs; ++t) {
      const bool interleaved = p_.rope == RopePairing::interleaved;
      double& x = rows[static_cast<std::size_t>(r * width + (interleaved ? 2 * t : t))];
      double& y = rows[static_cast<std::size_t>(r * width + (interleaved ? 2 * t + 1 : t + pairs))];
      const double c = angles[static_cast<std::size_t>(t)].cos_high;
      const double s = v_.rotation_sign * angles[static_cast<std::size_t>(t)].sin_high;
      const double turned = x * c - y * s;
      y = x * s + y * c;
      x = turned;
    }
  }
  return rows;
}

void Forward::weigh(const RowAt& at, WeighedRow& row, Errors& errors) {
  const std::int64_t D = p_.head_dim;
  const double scale = effective_scale(p_);
  const double slope = p_.alibi == AlibiKind::none ? 0 : slope_at(in_, at.b, at.h);
  const double* q = q_.data() + at.i * D;
  row.max = kNone;
  for (std::int64_t j = 0; j < p_.kv_len; ++j) {
    PairAt pair{at, j};
    pair.in_range = at.rows->real_key(j) && segment_visible(*at.rows, at.i, j);
    pair.kpos = at.rows->real_key(j) ? kpos(at.rows->of_key(j), j) : j;
    pair.seen = visible(p_, in_, *at.rows, at.b, at.h, at.i, j);
    if (!(v_.sees ? v_.sees(pair) : pair.seen)) continue;
    const double* k = k_.data() + j * D;
    ScoreParts parts;
    double magnitude = 0;
    for (std::int64_t c = 0; c < D; ++c) {
      parts.dot += q[c] * k[c];
      magnitude += std::fabs(q[c] * k[c]);
    }
    if (v_.dot) parts.dot = v_.dot(q, k, D);
    parts.scale = scale;
    parts.alibi = alibi_term(p_.alibi, slope, at.qpos, pair.kpos);
    parts.bias = bias_at(in_, at.b, at.h, at.i, j);
    const double z = v_.score ? v_.score(pair, parts) : defined_score(p_, parts);
    if (z == kNone) continue;
    row.keys.push_back(j);
    row.z.push_back(z);
    if (z > row.max) row.max = z;
    const double load =
        magnitude *
        std::max(std::fabs(scale), std::fabs(parts.dot) > 0 && magnitude > 0
                                       ? std::fabs(z - parts.bias - parts.alibi) / magnitude
                                       : 0.0);
    errors.score.push_back(load *
                               (u_.u_acc * u_.c_acc * (2 * std::sqrt(static_cast<double>(D)) + 6) +
                                2 * u_.u_in + 4 * u_.u_rope) +
                           std::fabs(z) * (4 * u_.u_acc + u_.u_score) + u_.eta_score +
                           (std::fabs(parts.alibi) + std::fabs(parts.bias)) * 4 * u_.u_acc);
  }
  row.sink = sink_of(at.h);
  if (row.sink > row.max) row.max = row.sink;
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    row.weight.push_back(std::exp(row.z[n] - row.max));
    errors.score[n] += std::fabs(row.max) * 2 * u_.u_acc;
    double f = 1;
    if (in_.keep.present)
      f = in_.keep.at(at.b, at.h, at.i, row.keys[n]) ? 1 / (1 - p_.dropout_p) : 0;
    row.dropout.push_back(f);
  }
  row.sum = row.sink == kNone ? 0 : std::exp(row.sink - row.max);
  for (const double w : row.weight) row.sum += w;
  errors.weight = u_.e_exp + u_.u_p + u_.u_in +
                  u_.u_acc * u_.c_acc * (6 + 2 * std::sqrt(static_cast<double>(row.keys.size())));
}

void Forward::average(const WeighedRow& row, const Errors& errors, RowOutput& out) {
  const std::int64_t width = p_.v_head_dim;
  out.max = row.max;
  out.sum = row.sum;
  out.lse = row.max + std::log(row.sum);
  for (std::size_t n = 0; v_.accumulate && n < row.keys.size(); ++n)
    for (std::int64_t c = 0; c < width; ++c) {
      double& sum = out.o[static_cast<std::size_t>(c)];
      sum = v_.accumulate(sum, row.dropout[n] * row.weight[n] *
                                   values_[static_cast<std::size_t>(row.keys[n] * width + c)]);
    }
  if (v_.accumulate)
    for (double& o : out.o) o /= row.sum;
  for (std::size_t n = 0; !v_.accumulate && n < row.keys.size(); ++n) {
    const double weight = row.dropout[n] == 0 ? 0 : row.dropout[n] * row.weight[n] / row.sum;
    const double* v = values_.data() + row.keys[n] * width;
    // A kernel multiplies by a weight of 0 too, so that NaN stays NaN.
    for (std::int64_t c = 0; c < width; ++c) out.o[static_cast<std::size_t>(c)] += weight * v[c];
  }
  double lse_error = 0;
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const double weight = std::fabs(row.dropout[n] * row.weight[n] / row.sum);
    const double* v = values_.data() + row.keys[n] * width;
    lse_error += row.weight[n] / row.sum * errors.score[n];
    for (std::int64_t c = 0; c < width; ++c) {
      const auto at_c = static_cast<std::size_t>(c);
      o_error_[at_c] += weight * (std::fabs(v[c] - out.o[at_c]) * errors.score[n] +
                                  std::fabs(v[c]) * errors.weight) +
                        u_.eta_p * std::fabs(v[c]);
    }
  }
  lse_error_ = lse_error + errors.weight + std::fabs(out.lse) * 4 * u_.u_acc;
}

void Forward::empty(const RowAt& at, double sink, RowOutput& out) const {
  out.outcome = RowOutcome::empty;
  if (sink > kNone) {
    out.lse = sink;
    return;
  }
  switch (p_.empty_lse) {
    case EmptyLse::neg_inf: out.lse = kNone; break;
    case EmptyLse::pos_inf: out.lse = -kNone; break;
    case EmptyLse::zero:
    case EmptyLse::unspecified: out.lse = 0; break;
  }
  out.o_unknown = p_.empty_output == EmptyOutput::unspecified;
  out.lse_unknown = p_.empty_lse == EmptyLse::unspecified;
  if (p_.empty_output == EmptyOutput::nan)
    std::fill(out.o.begin(), out.o.end(), std::numeric_limits<double>::quiet_NaN());
  if (p_.empty_output != EmptyOutput::mean_v || !at.segment) return;
  const auto n = static_cast<double>(at.segment->k1 - at.segment->k0);
  for (std::int64_t j = at.segment->k0; j < at.segment->k1; ++j)
    for (std::size_t c = 0; c < out.o.size(); ++c)
      out.o[c] += values_[static_cast<std::size_t>(j * p_.v_head_dim) + c] / n;
}

void Forward::row(const RowAt& at) {
  RowOutput out;
  out.o.assign(static_cast<std::size_t>(p_.v_head_dim), 0.0);
  o_error_.assign(out.o.size(), 0.0);
  lse_error_ = 0;
  if (!at.segment) {
    out.outcome = RowOutcome::padding;
    out.lse = kNone;
  } else {
    WeighedRow weighed;
    Errors errors;
    weigh(at, weighed, errors);
    const bool is_empty = weighed.keys.empty();
    if (v_.weigh) v_.weigh(at, weighed);
    errors.weight += weighed.extra_error;
    if (is_empty)
      empty(at, weighed.sink, out);
    else
      average(weighed, errors, out);
  }
  if (v_.finish) v_.finish(at, out);
  // A kernel that reads the tables finds nothing there.
  if (at.segment && p_.rope != RopePairing::none &&
      (key_outside_tables_ || (v_.rotate_q && !in_tables(query_position(*at.rows, at.i)))))
    out.o_unknown = out.lse_unknown = true;
  store(at, out);
}

void Forward::store(const RowAt& at, const RowOutput& out) {
  const auto row = static_cast<std::size_t>((at.b * p_.num_heads + at.h) * p_.q_len + at.i);
  const std::size_t width = out.o.size();
  for (std::size_t c = 0; c < width; ++c) {
    out_.o[row * width + c] = out.o[c];
    // NaN and Inf are compared as they are.
    out_.o_tolerance[row * width + c] =
        std::isfinite(out.o[c]) ? 2 * (o_error_[c] + std::fabs(out.o[c]) * u_.u_out + u_.eta_out)
                                : 0;
  }
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (out.o_unknown)
    for (std::size_t c = 0; c < width; ++c) out_.o_tolerance[row * width + c] = kUnknown;
  const double u_lse = p_.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  out_.lse[row] = out.lse;
  out_.lse_tolerance[row] =
      std::isfinite(out.lse) ? 2 * (lse_error_ + std::fabs(out.lse) * u_lse + 0x1p-149) : 0;
  if (out.lse_unknown) out_.lse_tolerance[row] = kUnknown;
  out_.o_unwritten[row] = out.o_unwritten;
  out_.lse_unwritten[row] = out.lse_unwritten;
}

std::int64_t Forward::query_position(const Rows& rows, std::int64_t i) const {
  std::int64_t right = rows.real_query(i) ? qpos(rows.of_query(i), i) : 0;
  if (rows.real_query(i) && !v_.query_offset_in_angles) right -= rows.of_query(i).offset;
  return v_.query_angle_position ? v_.query_angle_position(rows, i, right) : right;
}

std::int64_t Forward::key_position(const Rows& rows, std::int64_t j) const {
  const std::int64_t right = rows.real_key(j) ? kpos(rows.of_key(j), j) : 0;
  return v_.key_angle_position ? v_.key_angle_position(rows, j, right) : right;
}

void Forward::head(std::int64_t b, std::int64_t h, const Rows& rows) {
  RowAt at{b, h, v_.kv_head ? v_.kv_head(h) : kv_head(p_, h), 0, 0, &rows, nullptr};
  const bool rope = p_.rope != RopePairing::none;
  const auto query = [&](std::int64_t i) { return query_position(rows, i); };
  const auto key = [&](std::int64_t j) { return key_position(rows, j); };
  key_outside_tables_ = false;
  for (std::int64_t j = 0; rope && v_.rotate_k && j < p_.kv_len; ++j)
    key_outside_tables_ |= rows.real_key(j) && !in_tables(key(j));
  q_ = rope && v_.rotate_q ? rotated(in_.q, b, h, p_.q_len, query)
                           : rows_of_head(in_.q, b, h, p_.q_len);
  k_ = rope && v_.rotate_k ? rotated(in_.k, b, at.kv, p_.kv_len, key)
                           : rows_of_head(in_.k, b, at.kv, p_.kv_len);
  values_ = rope && v_.rotate_v ? rotated(in_.v, b, at.kv, p_.kv_len, key)
                                : rows_of_head(in_.v, b, at.kv, p_.kv_len);
  for (at.i = 0; at.i < p_.q_len; ++at.i) {
    at.segment = rows.real_query(at.i) ? &rows.of_query(at.i) : nullptr;
    at.qpos = at.segment ? qpos(*at.segment, at.i) : at.i;
    row(at);
  }
}

Prediction Forward::run() {
  if (v_.told.rope != RopePairing::none) tables_ = rope_positions(v_.told);
  const auto rows = static_cast<std::size_t>(p_.batch * p_.num_heads * p_.q_len);
  const std::size_t elements = rows * static_cast<std::size_t>(p_.v_head_dim);
  out_.o.assign(elements, 0);
  out_.o_tolerance.assign(elements, 0);
  out_.lse.assign(rows, 0);
  out_.lse_tolerance.assign(rows, 0);
  out_.o_unwritten.assign(rows, 0);
  out_.lse_unwritten.assign(rows, 0);
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Rows of_b = rows_of(p_, b);
    for (std::int64_t h = 0; h < p_.num_heads; ++h) head(b, h, of_b);
  }
  if (v_.last) v_.last(out_);
  return std::move(out_);
}

}  // namespace

double defined_score(const AttentionProblem& problem, const ScoreParts& parts) {
  double c = parts.scale * parts.dot;
  if (problem.alibi_inside_softcap) c += parts.alibi;
  if (problem.softcap > 0) c = problem.softcap * std::tanh(c / problem.softcap);
  if (!problem.alibi_inside_softcap) c += parts.alibi;
  return c + parts.bias;
}

Prediction predict(const Variant& variant) { return Forward(variant).run(); }

}  // namespace attest
