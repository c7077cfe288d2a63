// SPDX-License-Identifier: Apache-2.0
#include "harness/variant_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/alibi.hpp"
#include "reference/definition.hpp"

namespace attest {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// A number and how far a kernel may be off it.
struct Uncertain {
  double value = 0, error = 0;
};

class Backward {
 public:
  explicit Backward(const BackwardVariant& variant)
      : v_(variant), p_(variant.problem), in_(variant.inputs), u_(variant.profile) {}

  GradientPrediction run();

 private:
  using Tensor = GradientPrediction::Tensor;
  void head(std::int64_t b, std::int64_t h, const Rows& rows);
  void row(const RowAt& at);
  Uncertain delta(const BackwardRow& row) const;
  Uncertain score(const PairAt& pair, ScoreParts& parts) const;
  double cap_slope(const ScoreParts& parts) const;
  Uncertain d_p(const BackwardRow& row, std::int64_t j, double factor) const;
  /// Past one key; `delta_error` is made known with the first.
  void meet(const PairAt& at, BackwardRow& row, double& delta_error);
  void add(const BackwardPair& pair, double p_error, double d_z_error);
  void add_bias(const BackwardPair& pair, double error);
  void sum(Gradient gradient, std::size_t flat, double value, double error);
  void turn(Gradient gradient, std::int64_t b, std::int64_t h, std::int64_t row,
            std::int64_t position, double times);
  void finish(const Rows& rows, std::int64_t b);
  bool has(Gradient gradient) const {
    return !out_.of[static_cast<std::size_t>(gradient)].value.empty();
  }
  std::vector<double> rotated_row(const Dense<double>& tensor, std::int64_t b, std::int64_t h,
                                  std::int64_t row, std::int64_t position) const;
  double sink_of(std::int64_t h) const {
    return in_.sink.present ? in_.sink.at(0, h, 0, 0) : kNone;
  }
  /// Relative error of a sum of n products.
  double summed(std::int64_t n) const {
    return u_.u_acc * u_.c_acc * (2 * std::sqrt(static_cast<double>(n)) + 6);
  }

  const BackwardVariant& v_;
  const AttentionProblem& p_;
  const AttentionInputs& in_;
  const PrecisionProfile& u_;
  std::vector<std::vector<double>> keys_;  ///< of the head at work, turned to their positions
  std::vector<double> query_;
  std::vector<std::uint8_t> bias_touched_;
  GradientPrediction out_;
};

bool is_zero(double x) { return x == 0; }

void rotate(std::vector<double>& row, const AttentionProblem& p, std::int64_t position,
            double times, bool halves) {
  const std::int64_t pairs =
      std::min(effective_rope_dim(p), static_cast<std::int64_t>(row.size())) / 2;
  const std::vector<RopeAngle> angles = rope_angles(p, position);
  for (std::int64_t t = 0; t < pairs; ++t) {
    double& x = row[static_cast<std::size_t>(halves ? t : 2 * t)];
    double& y = row[static_cast<std::size_t>(halves ? t + pairs : 2 * t + 1)];
    const double c = angles[static_cast<std::size_t>(t)].cos_high;
    const double s = times * angles[static_cast<std::size_t>(t)].sin_high;
    const double turned = x * c - y * s;
    y = x * s + y * c;
    x = turned;
  }
}

std::vector<double> row_of(const Dense<double>& tensor, std::int64_t b, std::int64_t h,
                           std::int64_t row) {
  const auto first =
      tensor.values.begin() + static_cast<std::ptrdiff_t>(tensor.index(b, h, row, 0));
  return {first, first + tensor.shape[3]};
}

std::vector<double> Backward::rotated_row(const Dense<double>& tensor, std::int64_t b,
                                          std::int64_t h, std::int64_t row,
                                          std::int64_t position) const {
  std::vector<double> values = row_of(tensor, b, h, row);
  if (p_.rope != RopePairing::none) rotate(values, p_, position, 1, p_.rope == RopePairing::half);
  return values;
}

void Backward::sum(Gradient gradient, std::size_t flat, double value, double error) {
  Tensor& tensor = out_[gradient];
  if (tensor.value.empty()) return;
  tensor.value[flat] += value;
  // The sum itself rounds with the size of what is added.
  const std::int64_t terms = p_.q_len * p_.num_heads / p_.num_kv_heads + p_.kv_len;
  tensor.tolerance[flat] += error + std::fabs(value) * summed(terms);
}

Uncertain Backward::delta(const BackwardRow& row) const {
  const RowAt at = v_.o_row ? v_.o_row(row.at) : row.at;
  const auto flat =
      static_cast<std::size_t>((at.b * p_.num_heads + at.h) * p_.q_len + at.i) * row.d_o.size();
  Uncertain delta;
  for (std::size_t c = 0; c < row.d_o.size(); ++c) {
    if (row.d_o[c] == 0) continue;
    const double o = v_.forward.o[flat + c];
    delta.value += row.d_o[c] * o;
    delta.error += std::fabs(row.d_o[c]) * (v_.forward.o_tolerance[flat + c] +
                                            std::fabs(o) * (summed(p_.v_head_dim) + 2 * u_.u_in));
  }
  if (v_.delta) delta.value = v_.delta(row, delta.value);
  return delta;
}

Uncertain Backward::score(const PairAt& pair, ScoreParts& parts) const {
  const std::vector<double>& k = keys_[static_cast<std::size_t>(pair.j)];
  double magnitude = 0;
  for (std::size_t c = 0; c < query_.size(); ++c) {
    parts.dot += query_[c] * k[c];
    magnitude += std::fabs(query_[c] * k[c]);
  }
  parts.scale = effective_scale(p_);
  const double slope = p_.alibi == AlibiKind::none ? 0 : slope_at(in_, pair.row.b, pair.row.h);
  parts.alibi = alibi_term(p_.alibi, slope, pair.row.qpos, pair.kpos);
  parts.bias = bias_at(in_, pair.row.b, pair.row.h, pair.row.i, pair.j);
  const double z = defined_score(p_, parts);
  const double error =
      std::fabs(parts.scale) * magnitude * (summed(p_.head_dim) + 2 * u_.u_in + 4 * u_.u_rope) +
      std::fabs(z) * (4 * u_.u_acc + u_.u_score) + u_.eta_score +
      (std::fabs(parts.alibi) + std::fabs(parts.bias)) * 4 * u_.u_acc;
  return {z, std::isfinite(z) ? error : 0};
}

double Backward::cap_slope(const ScoreParts& parts) const {
  if (!(p_.softcap > 0)) return 1;
  if (v_.cap_slope) return v_.cap_slope(parts);
  const double t = std::tanh(
      (parts.scale * parts.dot + (p_.alibi_inside_softcap ? parts.alibi : 0)) / p_.softcap);
  return 1 - t * t;
}

Uncertain Backward::d_p(const BackwardRow& row, std::int64_t j, double factor) const {
  if (factor == 0) return {};
  Uncertain d_p;
  const std::int64_t channels =
      v_.d_p_channels < 0 ? p_.v_head_dim : std::min(v_.d_p_channels, p_.v_head_dim);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double product =
        row.d_o[static_cast<std::size_t>(c)] * in_.v.at(row.at.b, row.at.kv, j, c);
    d_p.value += factor * product;
    d_p.error += std::fabs(factor * product) * (summed(p_.v_head_dim) + 2 * u_.u_in + 2 * u_.u_acc);
  }
  return d_p;
}

void Backward::add_bias(const BackwardPair& pair, double error) {
  if (!has(Gradient::bias)) return;
  const RowAt& at = pair.row.at;
  const std::size_t flat = in_.bias.broadcast_index(at.b, at.h, at.i, pair.j);
  Tensor& d_bias = out_[Gradient::bias];
  if (v_.last_stays_in_bias) d_bias.value[flat] = d_bias.tolerance[flat] = 0;
  const double share = v_.share_in_bias ? v_.share_in_bias(at) : 1;
  if (share != 0) sum(Gradient::bias, flat, share * pair.to_bias, std::fabs(share) * error);
}

void Backward::add(const BackwardPair& pair, double p_error, double d_z_error) {
  const RowAt& at = pair.row.at;
  const std::vector<double>& k = keys_[static_cast<std::size_t>(pair.j)];
  const double share = v_.share_in_keys ? v_.share_in_keys(at) : 1;
  const double d_q_factor = v_.d_q_factor.value_or(pair.parts.scale);
  const double d_k_factor = v_.d_k_factor.value_or(pair.parts.scale);
  const double narrow = 2 * u_.u_p + 2 * u_.u_in + 8 * u_.u_acc + 2 * u_.u_rope;
  const auto d_s_error = [&](double d_s) {
    return std::fabs(pair.slope) * d_z_error + std::fabs(d_s) * (narrow + 16 * u_.u_acc) +
           2 * u_.eta_p;
  };
  const std::size_t q_row = has(Gradient::q) ? in_.q.index(at.b, at.h, at.i, 0) : 0;
  const std::size_t k_row = in_.k.index(at.b, at.kv, pair.j, 0);
  for (std::size_t c = 0; c < query_.size(); ++c) {
    sum(Gradient::q, q_row + c, d_q_factor * pair.to_q * k[c],
        std::fabs(d_q_factor * k[c]) * d_s_error(pair.to_q));
    if (share != 0)
      sum(Gradient::k, k_row + c, share * d_k_factor * pair.to_k * query_[c],
          std::fabs(share * d_k_factor * query_[c]) * d_s_error(pair.to_k));
  }
  const std::size_t v_row = in_.v.index(at.b, at.kv, pair.j, 0);
  for (std::size_t c = 0; share != 0 && c < pair.row.d_o.size(); ++c)
    sum(Gradient::v, v_row + c, share * pair.to_v * pair.row.d_o[c],
        std::fabs(share * pair.row.d_o[c]) *
            (std::fabs(pair.factor) * p_error + std::fabs(pair.to_v) * narrow + 2 * u_.eta_p));
  add_bias(pair, d_z_error + std::fabs(pair.to_bias) * 8 * u_.u_acc);
  if (!has(Gradient::slopes)) return;
  double distance = alibi_term(p_.alibi, 1.0, at.qpos, pair.kpos);
  if (v_.distance) distance = v_.distance(pair, distance);
  sum(Gradient::slopes, in_.slopes.broadcast_index(at.b, at.h, 0, 0), pair.to_slope * distance,
      std::fabs(distance) * (d_z_error + std::fabs(pair.to_slope) * 8 * u_.u_acc));
}

void Backward::meet(const PairAt& at, BackwardRow& row, double& delta_error) {
  ScoreParts parts;
  const Uncertain z = score(at, parts);
  if (!(v_.takes_part ? v_.takes_part(row, z.value) : z.value != kNone)) return;
  if (row.empty) {
    const Uncertain of_row = delta(row);
    row.delta = of_row.value;
    delta_error = of_row.error;
  }
  row.empty = false;
  const auto flat =
      static_cast<std::size_t>((row.at.b * p_.num_heads + row.at.h) * p_.q_len + row.at.i);
  BackwardPair pair{row, at.j, at.kpos, parts};
  pair.p = v_.weight ? v_.weight(row, z.value) : std::exp(z.value - row.lse);
  if (in_.keep.present)
    pair.factor = in_.keep.at(row.at.b, row.at.h, row.at.i, at.j) ? 1 / (1 - p_.dropout_p) : 0;
  if (v_.factor) pair.factor = v_.factor(at, pair.factor);
  pair.slope = cap_slope(parts);
  const Uncertain d_weight = d_p(row, at.j, pair.factor);
  pair.d_p = d_weight.value;
  const double y = pair.d_p - row.delta + row.d_lse;
  pair.d_z = pair.p * y;
  pair.d_a = pair.slope * pair.d_z;
  pair.to_v = pair.p * pair.factor;
  pair.to_q = pair.to_k = pair.d_a;
  pair.to_bias = pair.d_z;
  pair.to_slope = p_.alibi_inside_softcap ? pair.d_a : pair.d_z;
  if (v_.pair) v_.pair(pair);

  const double lse_error = std::isfinite(row.lse) ? v_.forward.lse_tolerance[flat] : 0;
  const double p_error = pair.p * (z.error + lse_error + u_.e_exp +
                                   2 * u_.u_acc * (std::fabs(row.lse) + std::fabs(z.value) + 2)) +
                         u_.eta_exp;
  double d_z_error =
      p_error * std::fabs(y) +
      (pair.p + p_error) *
          (d_weight.error + delta_error +
           4 * u_.u_acc * (std::fabs(pair.d_p) + std::fabs(row.delta) + std::fabs(row.d_lse)));
  // The slope of the softcap moves with its argument.
  if (p_.softcap > 0) d_z_error += std::fabs(pair.d_z) * (2 * z.error / p_.softcap + 32 * u_.u_acc);
  add(pair, p_error, d_z_error);
}

void Backward::row(const RowAt& at) {
  BackwardRow row;
  row.at = at;
  row.d_o = row_of(in_.d_o, at.b, at.h, at.i);
  if (v_.load_d_o) v_.load_d_o(row.d_o);
  const auto flat = static_cast<std::size_t>((at.b * p_.num_heads + at.h) * p_.q_len + at.i);
  row.lse = v_.forward.lse[flat];
  if (in_.d_lse.present) row.d_lse = in_.d_lse.at(at.b, at.h, at.i, 0);
  if (v_.d_lse) row.d_lse = v_.d_lse(at, row.d_lse);
  row.silent = row.d_lse == 0 && std::all_of(row.d_o.begin(), row.d_o.end(), is_zero);
  query_ = rotated_row(in_.q, at.b, at.h, at.i, at.qpos);
  double delta_error = 0;
  for (std::int64_t j = 0; !row.silent && j < p_.kv_len; ++j) {
    PairAt pair{at, j};
    pair.in_range = at.rows->real_key(j) && segment_visible(*at.rows, at.i, j);
    if (!pair.in_range) continue;  // nobody reads it, and a mistake that did is another's
    pair.kpos = kpos(at.rows->of_key(j), j);
    pair.seen = visible(p_, in_, *at.rows, at.b, at.h, at.i, j);
    if (v_.sees ? v_.sees(pair, row) : pair.seen) meet(pair, row, delta_error);
  }
  const double sink = sink_of(at.h);
  if (!has(Gradient::sink) || row.silent || sink == kNone) return;
  const double p_sink = row.empty ? 1 : std::exp(sink - row.lse);
  const double right = row.empty ? row.d_lse : p_sink * (row.d_lse - row.delta);
  const double value = v_.d_sink ? v_.d_sink(row, p_sink) : right;
  const double lse_error = std::isfinite(row.lse) ? v_.forward.lse_tolerance[flat] : 0;
  sum(Gradient::sink, static_cast<std::size_t>(at.h), value,
      std::fabs(value) * (lse_error + u_.e_exp + 16 * u_.u_acc) + p_sink * delta_error +
          8 * u_.u_acc * p_sink * (std::fabs(row.d_lse) + std::fabs(row.delta)));
}

void Backward::head(std::int64_t b, std::int64_t h, const Rows& rows) {
  RowAt at{b, h, v_.kv_head ? v_.kv_head(h) : kv_head(p_, h), 0, 0, &rows, nullptr};
  keys_.assign(static_cast<std::size_t>(p_.kv_len), {});
  for (std::int64_t j = 0; j < p_.kv_len; ++j)
    if (rows.real_key(j))
      keys_[static_cast<std::size_t>(j)] = rotated_row(in_.k, b, at.kv, j, kpos(rows.of_key(j), j));
  for (at.i = 0; at.i < p_.q_len; ++at.i) {
    if (!rows.real_query(at.i)) continue;
    at.segment = &rows.of_query(at.i);
    at.qpos = qpos(*at.segment, at.i);
    row(at);
  }
}

void Backward::turn(Gradient gradient, std::int64_t b, std::int64_t h, std::int64_t row,
                    std::int64_t position, double times) {
  Tensor& tensor = out_[gradient];
  if (tensor.value.empty() || times == 0) return;
  const auto width = static_cast<std::size_t>(tensor.shape[3]);
  const std::size_t first =
      static_cast<std::size_t>((b * tensor.shape[1] + h) * tensor.shape[2] + row) * width;
  std::vector<double> values(width);
  std::copy_n(tensor.value.begin() + static_cast<std::ptrdiff_t>(first), width, values.begin());
  const bool halves = v_.turn_in_halves || p_.rope == RopePairing::half;
  const std::size_t pairs = static_cast<std::size_t>(effective_rope_dim(p_)) / 2;
  for (std::size_t t = 0; t < pairs; ++t) {
    const std::size_t x = halves ? t : 2 * t, y = halves ? t + pairs : 2 * t + 1;
    double& error = tensor.tolerance[first + x];
    error +=
        tensor.tolerance[first + y] + 4 * u_.u_rope * (std::fabs(values[x]) + std::fabs(values[y]));
    tensor.tolerance[first + y] = error;
  }
  rotate(values, p_, position, times, halves);
  std::copy(values.begin(), values.end(),
            tensor.value.begin() + static_cast<std::ptrdiff_t>(first));
}

void Backward::finish(const Rows& rows, std::int64_t b) {
  if (p_.rope == RopePairing::none) return;
  for (std::int64_t i = 0; i < p_.q_len; ++i) {
    if (!rows.real_query(i)) continue;
    const std::int64_t right = qpos(rows.of_query(i), i);
    const std::int64_t position =
        v_.query_angle_position ? v_.query_angle_position(rows, i, right) : right;
    for (std::int64_t h = 0; h < p_.num_heads; ++h) turn(Gradient::q, b, h, i, position, v_.turn_q);
  }
  for (std::int64_t j = 0; j < p_.kv_len; ++j) {
    if (!rows.real_key(j)) continue;
    const std::int64_t right = kpos(rows.of_key(j), j);
    const std::int64_t position =
        v_.key_angle_position ? v_.key_angle_position(rows, j, right) : right;
    for (std::int64_t h = 0; h < p_.num_kv_heads; ++h)
      turn(Gradient::k, b, h, j, position, v_.turn_k);
  }
}

GradientPrediction Backward::run() {
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const auto gradient = static_cast<Gradient>(n);
    if (!wants_gradient(v_.told, gradient)) continue;
    const Dense<double>& input = tensor_of(in_, gradient);
    Tensor& tensor = out_.of[n];
    tensor.shape = input.shape;
    tensor.value.assign(input.values.size(), 0);
    tensor.tolerance.assign(input.values.size(), 0);
    tensor.unwritten.assign(input.values.size(), 0);
  }
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Rows rows = rows_of(p_, b);
    for (std::int64_t h = 0; h < p_.num_heads; ++h) head(b, h, rows);
    finish(rows, b);
  }
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const auto gradient = static_cast<Gradient>(n);
    const bool wide = gradient == Gradient::slopes || gradient == Gradient::sink;
    const double u_out = !wide ? u_.u_out : p_.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    // What overflows in a sum or in what is stored may come out as anything.
    const double most = std::min(limits(wide ? DType::f32 : p_.dtype).max_finite, u_.max_acc) / 4;
    Tensor& tensor = out_.of[n];
    for (std::size_t flat = 0; flat < tensor.value.size(); ++flat) {
      const double size = std::fabs(tensor.value[flat]);
      double& tolerance = tensor.tolerance[flat];
      tolerance = size > most           ? std::numeric_limits<double>::quiet_NaN()
                  : std::isfinite(size) ? 2 * (tolerance + size * u_out + u_.eta_out)
                                        : 0;
    }
  }
  if (v_.last) v_.last(out_);
  return std::move(out_);
}

}  // namespace

GradientPrediction predict(const BackwardVariant& variant) { return Backward(variant).run(); }

}  // namespace attest
