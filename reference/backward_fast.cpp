// SPDX-License-Identifier: Apache-2.0
#include "reference/backward_fast.hpp"

#include "reference/alibi.hpp"
#include "reference/backward_row.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

constexpr std::size_t index_of(Gradient gradient) { return static_cast<std::size_t>(gradient); }

void allocate(std::size_t count, ExpectedTensor& tensor) {
  for (std::vector<double>* part :
       {&tensor.value, &tensor.low, &tensor.radius, &tensor.t_mixed, &tensor.t_stat})
    part->assign(count, 0);
}

/// Sums over the keys of one row that stand together in dQ, in a slope or in a bias that broadcasts
/// over keys: what the row's keys share errs alike in all of them.
struct RowShare {
  double through_delta = 0;  ///< sum t p w
  double through_lse = 0;    ///< sum dA w
};

template <class R>
class Oracle final : public BackwardOracle {
 public:
  explicit Oracle(const OracleCall& call) : call_(call), problem_(call.problem) {
    parameters_[0].assign(call.inputs.bias.values.size());
    parameters_[1].assign(call.inputs.slopes.values.size());
    parameters_[2].assign(call.inputs.sink.values.size());
  }

  void begin_head(const Rows& rows, std::int64_t b, std::int64_t kv) override {
    const auto keys = static_cast<std::size_t>(problem_.kv_len);
    k_.resize(keys * dim_), v_.resize(keys * width_);
    d_k_.assign(keys * dim_), d_v_.assign(keys * width_);
    for (std::int64_t j = 0; j < problem_.kv_len; ++j) {
      const auto row = static_cast<std::size_t>(j);
      const bool real = rows.real_key(j);
      load(call_.inputs.v, b, kv, j, width_, v_, row);
      load(call_.inputs.k, b, kv, j, dim_, k_, row);
      if (call_.rules.rope && real) rotate(kpos(rows.of_key(j), j), k_, row);
    }
  }

  void add_row(const Rows& rows, const RowPlace& place, const ForwardFindings& forward,
               Expected& expected) override {
    const std::int64_t query_position = qpos(rows.of_query(place.i), place.i);
    q_.resize(dim_), d_o_.resize(width_);
    load(call_.inputs.q, place.b, place.h, place.i, dim_, q_, 0);
    if (call_.rules.rope) rotate(query_position, q_, 0);
    load(call_.inputs.d_o, place.b, place.h, place.i, width_, d_o_, 0);

    if (row_is_zero(place)) return;

    const BackwardCall<R> at{call_, forward, unit()};
    BackwardSums sums;
    if (!fill_keys(at, place, expected, sums)) {
      spoil(rows, place, expected);
      return;
    }
    for (std::size_t x = 0; x < keys_.size(); ++x) add_key(forward, x, sums);
    add_query(place, query_position, forward, sums, expected);
    add_parameters(rows, place, query_position, forward, sums);
    if (forward.row.has_sink) add_sink(place, forward, sums, expected.lse.radius[place.index]);
  }

  void add_empty_sink(const RowPlace& place) override {
    Contribution<R> x;
    x.value =
        call_.inputs.d_lse.present ? R(call_.inputs.d_lse.at(place.b, place.h, place.i, 0)) : R(0);
    x.mixed = 4 * call_.arithmetic.u * std::fabs(static_cast<double>(x.value));
    x.variance = squared(x.mixed);
    parameters_[2].add(static_cast<std::size_t>(place.h), x);
  }

  void spoil(const Rows& rows, const RowPlace& place, Expected& expected) override {
    ExpectedTensor& d_q = expected.gradients[index_of(Gradient::q)];
    for (std::size_t c = 0; c < dim_; ++c) {
      const std::size_t at = place.index * dim_ + c;
      d_q.t_mixed[at] = d_q.t_stat[at] = d_q.radius[at] = std::numeric_limits<double>::infinity();
    }
    const Dense<double>& bias = call_.inputs.bias;
    for (const std::int64_t j :
         visible_keys(problem_, call_.inputs, rows, place.b, place.h, place.i)) {
      const auto row = static_cast<std::size_t>(j);
      std::fill_n(d_k_.spoilt.data() + row * dim_, dim_, 1);
      std::fill_n(d_v_.spoilt.data() + row * width_, width_, 1);
      if (bias.present)
        parameters_[0].spoilt[bias.broadcast_index(place.b, place.h, place.i, j)] = 1;
    }
    if (call_.inputs.slopes.present)
      parameters_[1].spoilt[call_.inputs.slopes.broadcast_index(place.b, place.h, 0, 0)] = 1;
    if (call_.inputs.sink.present) parameters_[2].spoilt[static_cast<std::size_t>(place.h)] = 1;
  }

  void end_head(const Rows& rows, std::int64_t b, std::int64_t kv, Expected& expected) override {
    const R scale = R(call_.rules.scale) + R(call_.rules.scale_low);
    SumRules with_scale = rules();
    with_scale.factor = std::fabs(call_.rules.scale);
    for (std::int64_t j = 0; j < problem_.kv_len; ++j) {
      const auto row = static_cast<std::size_t>(j);
      const auto first =
          static_cast<std::size_t>((b * problem_.num_kv_heads + kv) * problem_.kv_len + j);
      elements_.clear();
      for (std::size_t c = 0; c < dim_; ++c)
        elements_.push_back(element_of(call_.arithmetic, with_scale, d_k_, row * dim_ + c, scale));
      if (call_.rules.rope && rows.real_key(j)) turn_back(kpos(rows.of_key(j), j));
      write(elements_, first * dim_, expected.gradients[index_of(Gradient::k)]);
      elements_.clear();
      SumRules of_v = rules();
      of_v.weight_error = profile().u_in;
      for (std::size_t c = 0; c < width_; ++c)
        elements_.push_back(element_of(call_.arithmetic, of_v, d_v_, row * width_ + c, R(1)));
      write(elements_, first * width_, expected.gradients[index_of(Gradient::v)]);
    }
  }

  void finish(Expected& expected) override {
    SumRules plain = rules();
    plain.weight_error = 0;
    constexpr Gradient kParameters[] = {Gradient::bias, Gradient::slopes, Gradient::sink};
    for (std::size_t n = 0; n < 3; ++n) {
      const bool stored = kParameters[n] == Gradient::bias;
      ExpectedTensor& tensor = expected.gradients[index_of(kParameters[n])];
      for (std::size_t x = 0; x < parameters_[n].value.size(); ++x)
        write_element(element_of(call_.arithmetic, plain, parameters_[n], x, R(1)),
                      stored ? profile().u_out : call_.arithmetic.u_lse,
                      stored ? profile().eta_out : call_.arithmetic.eta_lse, tensor, x);
    }
  }

 private:
  static constexpr double unit() { return sizeof(R) > sizeof(double) ? 0x1p-64 : 0x1p-53; }
  const PrecisionProfile& profile() const { return call_.arithmetic.profile; }

  /// Rounding of q or k as a weight: before and after the rotation, and by it.
  SumRules rules() const {
    SumRules rules;
    rules.unit = unit();
    rules.weight_error = 2 * profile().u_in + 1.5 * call_.arithmetic.u_rope;
    return rules;
  }

  void load(const Dense<double>& tensor, std::int64_t b, std::int64_t h, std::int64_t row,
            std::size_t channels, Weights<R>& to, std::size_t at) const {
    if (channels == 0) return;
    const double* from = tensor.values.data() + tensor.index(b, h, row, 0);
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t x = at * channels + c;
      to.value[x] = from[c];
      to.abs[x] = to.size[x] = std::fabs(from[c]);
    }
  }

  template <class Visit>
  void for_each_pair(std::int64_t position, Visit visit) const {
    const std::vector<RopeAngle> angles = rope_angles(problem_, position);
    for (std::size_t t = 0; t < angles.size(); ++t)
      visit(first_of_pair(problem_.rope, t), second_of_pair(problem_.rope, angles.size(), t),
            R(angles[t].cos_high) + R(angles[t].cos_low),
            R(angles[t].sin_high) + R(angles[t].sin_low));
  }

  void rotate(std::int64_t position, Weights<R>& weights, std::size_t row) const {
    for_each_pair(position, [&](std::size_t first, std::size_t second, R cos, R sin) {
      const std::size_t x = row * dim_ + first, y = row * dim_ + second;
      const R a = weights.value[x], b = weights.value[y];
      weights.value[x] = a * cos - b * sin;
      weights.value[y] = a * sin + b * cos;
      weights.abs[x] = std::fabs(static_cast<double>(weights.value[x]));
      weights.abs[y] = std::fabs(static_cast<double>(weights.value[y]));
      weights.size[x] = weights.size[y] = std::sqrt(static_cast<double>(a * a + b * b));
    });
  }

  /// The transpose of the rotation, on values and on what bounds them.
  void turn_back(std::int64_t position) {
    const double u_rope = 1.5 * call_.arithmetic.u_rope;
    for_each_pair(position, [&](std::size_t first, std::size_t second, R cos, R sin) {
      GradientElement<R>&x = elements_[first], &y = elements_[second];
      if (std::isinf(x.mixed)) return;  // a spoilt row
      const GradientElement<R> a = x, b = y;
      const double c = std::fabs(static_cast<double>(cos)), s = std::fabs(static_cast<double>(sin));
      x.value = a.value * cos + b.value * sin;
      y.value = b.value * cos - a.value * sin;
      const double va = std::fabs(static_cast<double>(a.value)),
                   vb = std::fabs(static_cast<double>(b.value));
      const auto turn = [&](double of_a, double of_b, double rounding, double& to_x, double& to_y) {
        to_x = c * of_a + s * of_b + rounding * (c * va + s * vb);
        to_y = c * of_b + s * of_a + rounding * (c * vb + s * va);
      };
      turn(a.mixed, b.mixed, u_rope, x.mixed, y.mixed);
      turn(a.stat, b.stat, u_rope, x.stat, y.stat);
      turn(a.radius, b.radius, 8 * unit(), x.radius, y.radius);
    });
  }

  void write(const std::vector<GradientElement<R>>& elements, std::size_t first,
             ExpectedTensor& tensor) const {
    for (std::size_t c = 0; c < elements.size(); ++c)
      write_element(elements[c], profile().u_out, profile().eta_out, tensor, first + c);
  }

  /// Where dO and dLSE are 0 every contribution is, and exactly.
  bool row_is_zero(const RowPlace& place) const {
    const Dense<double>& d_lse = call_.inputs.d_lse;
    if (d_lse.present && d_lse.at(place.b, place.h, place.i, 0) != 0) return false;
    return std::all_of(d_o_.abs.begin(), d_o_.abs.end(), [](double x) { return x == 0; });
  }

  /// False where a size leaves the domain of the declared arithmetic, or where the scores are so
  /// uncertain that a kernel that forms them again may find weights e times as large.
  bool fill_keys(const BackwardCall<R>& at, const RowPlace& place, const Expected& expected,
                 BackwardSums& sums) {
    if (at.forward.sums && (at.forward.sums->is_uncertain || at.forward.sums->growth > 1))
      return false;
    const R keep = R(call_.keep_high) + R(call_.keep_low);
    load_weights(at, call_.arithmetic.has_dropout ? keep : R(1), keys_);
    const double f = call_.arithmetic.keep_factor, largest = at.largest();
    for (std::size_t x = 0; x < keys_.size(); ++x) {
      BackwardKey<R>& key = keys_[x];
      if (static_cast<std::size_t>(at.forward.row.value[x]) == at.forward.head.zero_row) continue;
      const auto j = static_cast<std::size_t>(at.forward.row.key[x]);
      R dot = 0;
      for (std::size_t c = 0; c < width_; ++c) {
        const R product = d_o_.value[c] * v_.value[j * width_ + c];
        const auto size = std::fabs(static_cast<double>(product));
        dot += product, key.B += size, key.B2 += size * size;
      }
      key.d_p = call_.arithmetic.has_dropout ? keep * dot : dot;
      key.B *= f, key.B2 *= f * f;
      if (!(key.B < largest)) return false;
    }
    delta_ = sum_delta(at, width_, keys_, sums);
    sums.d_lse =
        call_.inputs.d_lse.present ? call_.inputs.d_lse.at(place.b, place.h, place.i, 0) : 0;
    if (at.forward.sums) {
      bound_delta(at, d_o_, keys_, sums);
      sums.lse_growth = std::exp(std::min(300.0, expected.lse.t_mixed[place.index]));
      sums.lse_variance = squared(expected.lse.t_stat[place.index] / kLambda);
      sums.vague = is_nonlinear(*at.forward.sums);
    }
    for (std::size_t x = 0; x < keys_.size(); ++x) {
      BackwardKey<R>& key = keys_[x];
      key.y = key.d_p - delta_ + R(sums.d_lse);
      key.d_z.value = key.p * key.y;
      key.d_a.value = key.d_z.value * key.slope;
      KeyError<R>{at, sums, static_cast<double>(width_)}.fill(x, key);
      if (!(std::fabs(static_cast<double>(key.d_z.value)) < largest)) return false;
    }
    return true;
  }

  /// dK_j and dV_j: rows of other queries err independently.
  void add_key(const ForwardFindings& forward, std::size_t x, const BackwardSums& sums) {
    const BackwardKey<R>& key = keys_[x];
    const auto j = static_cast<std::size_t>(forward.row.key[x]);
    const double p = static_cast<double>(key.p), t = static_cast<double>(key.slope);
    const double d_a = static_cast<double>(key.d_a.value);
    Contribution<R> to_k = key.d_a;
    to_k.mixed += key.shared_a;
    to_k.variance += squared(t * p) * sums.EDS + squared(d_a) * sums.lse_variance;
    d_k_.add_row(j * dim_, to_k, q_, 0, dim_);
    if (sums.vague) std::fill_n(d_k_.vague.data() + j * dim_, dim_, 1);

    if (static_cast<std::size_t>(forward.row.value[x]) == forward.head.zero_row) return;  // dropped
    const double kept = static_cast<double>(key.kept);
    Contribution<R> to_v;
    to_v.value = key.kept;
    to_v.radius = (forward.row.p_error[x] + 6 * unit() * p) * call_.arithmetic.keep_factor;
    if (forward.sums) weight_error(forward, x, kept, p, sums, to_v);
    d_v_.add_row(j * width_, to_v, d_o_, 0, width_);
    if (sums.vague) std::fill_n(d_v_.vague.data() + j * width_, width_, 1);
  }

  /// Error of the rounded f P that dV sums.
  void weight_error(const ForwardFindings& forward, std::size_t x, double kept, double p,
                    const BackwardSums& sums, Contribution<R>& to) const {
    const Arithmetic& a = call_.arithmetic;
    const double rounding_z = 2 * a.u * std::fabs(forward.row.z[x] - forward.row.lse);
    const double rho = std::expm1(std::min(300.0, forward.terms.delta[x] + rounding_z));
    const double factor = a.has_dropout ? a.u + a.keep_error : 0;
    const double stored =
        profile().u_p > 0 ? std::max(profile().u_p * kept, profile().eta_p * a.keep_factor) : 0;
    const double lost = profile().eta_exp * a.keep_factor;
    const double variance = p > 0 ? squared(forward.terms.noise[x] / p) : 0;
    to.mixed = kept * (rho * sums.lse_growth + sums.lse_growth - 1 + a.u + factor) +
               stored * sums.lse_growth * (1 + rho) + lost;
    to.variance = squared(kept) * (variance + squared(rounding_z) + sums.lse_variance +
                                   squared(a.u) + squared(factor)) +
                  squared(stored) + squared(lost);
  }

  /// dQ of the row: what the keys share errs alike, so it meets sum t p k and sum dA k.
  void add_query(const RowPlace& place, std::int64_t query_position, const ForwardFindings& forward,
                 const BackwardSums& sums, Expected& expected) {
    d_q_.assign(dim_);
    through_delta_.assign(dim_, 0);
    for (std::size_t x = 0; x < keys_.size(); ++x) {
      const auto j = static_cast<std::size_t>(forward.row.key[x]);
      Contribution<R> to_q = keys_[x].d_a;
      if (sums.vague) to_q.mixed += keys_[x].shared_a;
      d_q_.add_row(0, to_q, k_, j, dim_);
      const double share = static_cast<double>(keys_[x].p * keys_[x].slope);
      for (std::size_t c = 0; c < dim_; ++c)
        through_delta_[c] += share * static_cast<double>(k_.value[j * dim_ + c]);
    }
    SumRules of_q = rules();
    of_q.factor = std::fabs(call_.rules.scale);
    if (forward.sums) of_q.kappa = forward.sums->kappa;
    elements_.clear();
    for (std::size_t c = 0; c < dim_; ++c) {
      add_share({through_delta_[c], static_cast<double>(d_q_.value[c])}, sums, d_q_, c);
      elements_.push_back(element_of(call_.arithmetic, of_q, d_q_, c,
                                     R(call_.rules.scale) + R(call_.rules.scale_low)));
    }
    if (call_.rules.rope) turn_back(query_position);
    write(elements_, place.index * dim_, expected.gradients[index_of(Gradient::q)]);
  }

  /// The errors of delta and lse, which all keys of the row share.
  void add_share(const RowShare& share, const BackwardSums& sums, GradientSums<R>& to,
                 std::size_t at) const {
    to.variance[at] +=
        sums.EDS * squared(share.through_delta) + sums.lse_variance * squared(share.through_lse);
    if (sums.vague)
      to.vague[at] = 1;
    else
      to.mixed[at] += sums.ED * sums.lse_growth * std::fabs(share.through_delta) +
                      (sums.lse_growth - 1) * std::fabs(share.through_lse);
  }

  void add_parameters(const Rows& rows, const RowPlace& place, std::int64_t query_position,
                      const ForwardFindings& forward, const BackwardSums& sums) {
    const Dense<double>&bias = call_.inputs.bias, &slopes = call_.inputs.slopes;
    if (bias.present) add_bias(place, forward, sums, bias);
    if (slopes.present) {
      const std::size_t at = slopes.broadcast_index(place.b, place.h, 0, 0);
      RowShare share;
      for (std::size_t x = 0; x < keys_.size(); ++x) {
        const std::int64_t j = forward.row.key[x];
        const double distance =
            alibi_term(problem_.alibi, 1.0, query_position, kpos(rows.of_key(j), j));
        const bool inside = call_.rules.alibi_inside;
        Contribution<R> to_slope = inside ? keys_[x].d_a : keys_[x].d_z;
        if (sums.vague) to_slope.mixed += inside ? keys_[x].shared_a : keys_[x].shared_z;
        share.through_delta +=
            static_cast<double>(keys_[x].p * (inside ? keys_[x].slope : R(1))) * distance;
        share.through_lse += static_cast<double>(to_slope.value) * distance;
        parameters_[1].add(at, scaled(to_slope, distance));
      }
      add_share(share, sums, parameters_[1], at);
    }
  }

  static Contribution<R> scaled(Contribution<R> x, double factor) {
    const double size = std::fabs(factor);
    return {x.value * R(factor), x.mixed * size, x.variance * factor * factor, x.radius * size};
  }

  void add_bias(const RowPlace& place, const ForwardFindings& forward, const BackwardSums& sums,
                const Dense<double>& bias) {
    RowShare share;
    for (std::size_t x = 0; x < keys_.size(); ++x) {
      const BackwardKey<R>& key = keys_[x];
      const std::size_t at = bias.broadcast_index(place.b, place.h, place.i, forward.row.key[x]);
      Contribution<R> to_bias = key.d_z;
      if (sums.vague) to_bias.mixed += key.shared_z;
      parameters_[0].add(at, to_bias);
      const RowShare of_key{static_cast<double>(key.p), static_cast<double>(key.d_z.value)};
      if (bias.shape[3] > 1)
        add_share(of_key, sums, parameters_[0], at);
      else
        share.through_delta += of_key.through_delta, share.through_lse += of_key.through_lse;
    }
    if (bias.shape[3] <= 1 && !keys_.empty())
      add_share(share, sums, parameters_[0], bias.broadcast_index(place.b, place.h, place.i, 0));
  }

  /// -p_sink (delta - dLSE): the sink is a key with v = 0.
  void add_sink(const RowPlace& place, const ForwardFindings& forward, const BackwardSums& sums,
                double lse_radius) {
    const Arithmetic& a = call_.arithmetic;
    const RowScores& row = forward.row;
    const R log_p = R(row.sink) - R(row.lse) - R(row.lse_low), weight = std::exp(log_p);
    const double p = static_cast<double>(weight), y = sums.d_lse - sums.D;
    const double size = std::fabs(sums.d_lse) + std::fabs(sums.D);
    Contribution<R> x;
    x.value = weight * (R(sums.d_lse) - delta_);
    const double p_error =
        p * (lse_radius + unit() * (8 + 2 * std::fabs(static_cast<double>(log_p))));
    x.radius = p_error * (std::fabs(y) + sums.D_radius) + p * (sums.D_radius + 4 * unit() * size);
    if (forward.sums) {
      const double common =
          2 * a.u * (std::fabs(row.sink) + 2 * std::fabs(row.sink - row.lse) + std::fabs(row.lse)) +
          (1 + forward.sums->max_updates) * profile().e_exp;
      const double rho = std::expm1(std::min(300.0, common));
      x.mixed =
          p * std::fabs(y) * (rho + 4 * a.u) * sums.lse_growth +
          (1 + rho) * sums.lse_growth * p * (sums.ED + 2 * a.u * size) +
          p * std::fabs(y) * (sums.lse_growth - 1) + profile().eta_exp * std::fabs(y) +
          profile().eta_acc * (2 * static_cast<double>(width_) + static_cast<double>(row.n) + 4);
      x.variance = squared(p * y) * (squared(rho) + 16 * a.u * a.u + sums.lse_variance) +
                   squared(p) * (sums.EDS + squared(2 * a.u * size)) +
                   squared(profile().eta_exp * y);
    }
    const auto at = static_cast<std::size_t>(place.h);
    parameters_[2].add(at, x);
    if (sums.vague) parameters_[2].vague[at] = 1;
  }

  const OracleCall& call_;
  const AttentionProblem& problem_;
  const std::size_t dim_ = static_cast<std::size_t>(problem_.head_dim);
  const std::size_t width_ = static_cast<std::size_t>(problem_.v_head_dim);
  Weights<R> k_, v_, q_, d_o_;
  GradientSums<R> d_k_, d_v_, d_q_, parameters_[3];  // bias, slopes, sink
  std::vector<BackwardKey<R>> keys_;
  std::vector<GradientElement<R>> elements_;
  std::vector<double> through_delta_;
  R delta_ = 0;
};

}  // namespace

std::unique_ptr<BackwardOracle> make_backward_oracle(const OracleCall& call) {
  if (call.problem.dtype == DType::f64) return std::make_unique<Oracle<long double>>(call);
  return std::make_unique<Oracle<double>>(call);
}

void allocate_gradients(const AttentionInputs& inputs, Expected& expected) {
  for (std::size_t n = 0; n < kNumGradients; ++n)
    allocate(tensor_of(inputs, static_cast<Gradient>(n)).values.size(), expected.gradients[n]);
}

}  // namespace attest
