// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: the answer to a RandomCall in double by the formulas of
// docs/semantics.md, pair by pair. Shares nothing with the kernels.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "impls/random_call.hpp"

namespace attest::testing {

/// A key that a query row sees, with a bias above -inf.
struct PlainPair {
  std::int64_t j;
  std::vector<double> key;  ///< turned to its position
  double z;
  double cap_slope;  ///< 1 - tanh^2 of the softcap
  double distance;   ///< what a slope of 1 adds to the score
  double kept;       ///< f
};

/// A query row that is no padding.
struct PlainRow {
  std::int64_t b, h, g, i, position;
  std::vector<double> query;  ///< turned to its position
  std::vector<PlainPair> pairs;
  double sink, lse;
};

inline double broadcast_entry(Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                              std::int64_t j) {
  return t.get({t.extent(0) == 1 ? 0 : b, t.extent(1) == 1 ? 0 : h, t.extent(2) == 1 ? 0 : i,
                t.extent(3) == 1 ? 0 : j});
}

/// R(position) x, or the way back with direction -1.
inline std::vector<double> turned(const attest_attention& p, const std::vector<double>& x,
                                  std::int64_t position, double direction = 1) {
  std::vector<double> result = x;
  for (std::int64_t t = 0; p.rope && t < p.rope_dim / 2; ++t) {
    const bool pairs = p.rope == ATTEST_ROPE_INTERLEAVED;
    const auto first = static_cast<std::size_t>(pairs ? 2 * t : t);
    const auto second = static_cast<std::size_t>(pairs ? 2 * t + 1 : t + p.rope_dim / 2);
    const double angle = direction * rope_angle(p, position, t);
    result[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
    result[second] = x[first] * std::sin(angle) + x[second] * std::cos(angle);
  }
  return result;
}

/// The channel that RoPE mixes with c; c itself where it mixes none.
inline std::int64_t partner(const attest_attention& p, std::int64_t c) {
  if (!p.rope || c >= p.rope_dim) return c;
  if (p.rope == ATTEST_ROPE_INTERLEAVED) return c ^ 1;
  return c < p.rope_dim / 2 ? c + p.rope_dim / 2 : c - p.rope_dim / 2;
}

inline std::vector<double> row_at(Tensor& t, std::int64_t b, std::int64_t h, std::int64_t row) {
  std::vector<double> x;
  for (std::int64_t c = 0; c < t.extent(3); ++c) x.push_back(t.get({b, h, row, c}));
  return x;
}

inline bool plain_sees(RandomCall& call, std::size_t n, const PlainRow& row, std::int64_t j) {
  const attest_attention& p = call.p;
  const std::int64_t kpos = j - call.sequences[n].k0, ahead = kpos - row.position;
  bool sees = p.base == ATTEST_BASE_FULL || ahead <= 0;
  if (p.base == ATTEST_BASE_PREFIX)
    sees = sees || kpos < call["prefix_len"].get({static_cast<std::int64_t>(n)});
  const bool in_window = (p.window_left == -1 || -ahead <= p.window_left) &&
                         (p.window_right == -1 || ahead <= p.window_right);
  const bool global =
      (0 <= row.position && row.position < p.global_tokens) || kpos < p.global_tokens;
  sees = sees && (in_window || global);
  if (p.mask) sees = sees && broadcast_entry(call["mask"], row.b, row.h, row.i, j) != 0;
  if (p.blocks)
    sees = sees &&
           broadcast_entry(call["blocks"], row.b, row.h, row.i / p.block_q, j / p.block_k) != 0;
  return sees;
}

/// The pair without its key's fate: z may be -inf.
inline PlainPair plain_pair(RandomCall& call, std::size_t n, const PlainRow& row, std::int64_t j,
                            const std::vector<double>& key) {
  const attest_attention& p = call.p;
  const std::int64_t kpos = j - call.sequences[n].k0, ahead = kpos - row.position;
  PlainPair pair{j, key, 0, 1, 0, 1};
  for (std::size_t c = 0; c < key.size(); ++c) pair.z += row.query[c] * key[c];
  pair.z *= p.scale;
  double alibi = 0;
  if (p.alibi) {
    Tensor& t = call["alibi_slopes"];
    const double slope = p.alibi_slopes->ndim == 2 ? t.get({row.b, row.h}) : t.get({row.h});
    pair.distance = static_cast<double>(p.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::abs(ahead)
                                        : p.alibi == ATTEST_ALIBI_SIGNED ? ahead
                                                                         : kpos);
    alibi = slope * pair.distance;
  }
  if (p.alibi_inside_softcap) pair.z += alibi;
  if (p.softcap > 0) {
    const double t = std::tanh(pair.z / p.softcap);
    pair.z = p.softcap * t;
    pair.cap_slope = 1 - t * t;
  }
  if (!p.alibi_inside_softcap) pair.z += alibi;
  if (p.bias) pair.z += broadcast_entry(call["bias"], row.b, row.h, row.i, j);
  if (p.keep) pair.kept = call["keep"].get({row.b, row.h, row.i, j}) / (1 - p.dropout_p);
  return pair;
}

/// body(row) for every query row that is no padding.
template <class Body>
void for_each_plain_row(RandomCall& call, Body&& body) {
  const std::int64_t heads = call.p.q->shape[1], group = heads / call.p.k->shape[1];
  for (std::size_t n = 0; n < call.sequences.size(); ++n) {
    const SequenceRows rows = call.sequences[n];
    for (std::int64_t h = 0; h < heads; ++h) {
      std::vector<std::vector<double>> keys;
      for (std::int64_t j = rows.k0; j < rows.k1; ++j)
        keys.push_back(turned(call.p, row_at(call["k"], rows.b, h / group, j), j - rows.k0));
      for (std::int64_t i = rows.q0; i < rows.q1; ++i) {
        PlainRow row{rows.b, h, h / group, i, i - rows.q0 + offset_of(call, n), {}, {}, 0, 0};
        row.query = turned(call.p, row_at(call["q"], row.b, h, i), row.position);
        row.sink = call.p.sink ? call["sink"].get({h}) : -HUGE_VAL;
        // Scores stay below 100 here, so that exp needs no maximum.
        double sum = std::exp(row.sink);
        for (std::int64_t j = rows.k0; j < rows.k1; ++j) {
          if (!plain_sees(call, n, row, j)) continue;
          row.pairs.push_back(
              plain_pair(call, n, row, j, keys[static_cast<std::size_t>(j - rows.k0)]));
          if (row.pairs.back().z == -HUGE_VAL)
            row.pairs.pop_back();
          else
            sum += std::exp(row.pairs.back().z);
        }
        row.lse = std::log(sum);
        body(row);
      }
    }
  }
}

struct Answer {
  std::vector<double> o, lse;  ///< row-major
};

inline Answer answer(RandomCall& call) {
  const attest_attention& p = call.p;
  const std::int64_t heads = p.q->shape[1], q_len = p.q->shape[2], v_dim = p.v->shape[3];
  Answer result;
  result.o.assign(static_cast<std::size_t>(p.q->shape[0] * heads * q_len * v_dim), 0);
  result.lse.assign(static_cast<std::size_t>(p.q->shape[0] * heads * q_len), -HUGE_VAL);
  for_each_plain_row(call, [&](const PlainRow& row) {
    const std::int64_t at = (row.b * heads + row.h) * q_len + row.i;
    result.lse[static_cast<std::size_t>(at)] = row.lse;
    for (const PlainPair& pair : row.pairs)
      for (std::int64_t c = 0; c < v_dim; ++c)
        result.o[static_cast<std::size_t>(at * v_dim + c)] +=
            pair.kept * std::exp(pair.z - row.lse) * call["v"].get({row.b, row.g, pair.j, c});
  });
  return result;
}

/// Room for the arithmetic on |v| <= 2, |z| < 100: 2^-24 * 100 in f32 logits is 6e-6 of a weight;
/// 16-bit types round o (and weights, in one implementation) to 2^-11 or 2^-8.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f32: return 1e-4;
    case DType::f16: return 8e-3;
    case DType::bf16: return 6e-2;
  }
  return 0;
}

/// o and lse are those of the formulas.
inline void expect_answer(RandomCall& call, std::uint64_t seed) {
  const Answer expected = answer(call);
  const Shape shape{call["o"].extent(0), call["o"].extent(1), call["o"].extent(2),
                    call["o"].extent(3)};
  std::size_t row = 0, element = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i, ++row) {
        for (std::int64_t c = 0; c < shape[3]; ++c, ++element)
          ASSERT_NEAR(call["o"].get({b, h, i, c}), expected.o[element], tolerance(call.dtype))
              << "seed " << seed << " " << name(call.dtype) << " o " << b << ' ' << h << ' ' << i
              << ' ' << c;
        if (!call.p.lse) continue;
        const double lse = call["lse"].get({b, h, i});
        const double room = call.dtype == DType::f64 ? 1e-12 : 1e-4;
        ASSERT_TRUE(lse == expected.lse[row] || std::fabs(lse - expected.lse[row]) <= room)
            << "seed " << seed << " lse " << b << ' ' << h << ' ' << i << ": " << lse << ", not "
            << expected.lse[row];
      }
}

/// One element of a gradient. Each term that is summed has a relative error, which counts against
/// `magnitude`, and an absolute one from underflow, which counts against `floor`.
struct ExpectedGradient {
  double value = 0, magnitude = 0, floor = 0;

  void add(double term, double size, double other_factor) {
    value += term, magnitude += size, floor += std::fabs(other_factor);
  }
};

/// The gradients of a call by section 5, each in the shape of its input and row-major.
class GradientAnswer {
 public:
  explicit GradientAnswer(RandomCall& call) : call_(call) {
    for (const char* name : {"q", "k", "v", "bias", "alibi_slopes", "sink"})
      if (call.has(name)) elements_[name].resize(count(call[name]));
    for_each_plain_row(call, [&](const PlainRow& row) { add_row(row); });
    if (call.p.rope) turn_back();
  }

  /// The gradient of input `name`.
  const ExpectedGradient& at(const std::string& name, const Shape& index) {
    return element(name, index);
  }

 private:
  static std::size_t count(Tensor& t) {
    std::size_t n = 1;
    for (int a = 0; a < t.dl()->ndim; ++a) n *= static_cast<std::size_t>(t.extent(a));
    return n;
  }
  /// Of an element; axes of extent 1 broadcast.
  std::size_t place(const std::string& name, const Shape& index) {
    std::int64_t n = 0;
    for (std::size_t a = 0; a < index.size(); ++a) {
      const std::int64_t extent = call_[name].extent(static_cast<int>(a));
      n = n * extent + (extent == 1 ? 0 : index[a]);
    }
    return static_cast<std::size_t>(n);
  }
  ExpectedGradient* address(const std::string& name, const Shape& index) {
    return elements_.at(name).data() + place(name, index);
  }
  ExpectedGradient& element(const std::string& name, const Shape& index) {
    return *address(name, index);
  }

  void add_row(const PlainRow& row) {
    const attest_attention& p = call_.p;
    const double d_lse = p.d_lse ? call_["d_lse"].get({row.b, row.h, row.i}) : 0;
    if (row.pairs.empty()) {
      if (row.sink > -HUGE_VAL) element("sink", {row.h}).add(d_lse, std::fabs(d_lse), 0);
      return;
    }
    const std::vector<double> d_o = row_at(call_["d_o"], row.b, row.h, row.i);
    double delta = 0, delta_size = 0, d_o_size = 0;
    for (const double x : d_o) d_o_size += std::fabs(x);
    std::vector<double> d_p, d_p_size;
    for (const PlainPair& pair : row.pairs) {
      d_p.push_back(0), d_p_size.push_back(0);
      const std::vector<double> value = row_at(call_["v"], row.b, row.g, pair.j);
      for (std::size_t c = 0; c < d_o.size(); ++c) {
        const double term = pair.kept * d_o[c] * value[c];
        d_p.back() += term, d_p_size.back() += std::fabs(term);
      }
      const double weight = std::exp(pair.z - row.lse);
      delta += weight * d_p.back(), delta_size += weight * d_p_size.back();
    }
    for (std::size_t n = 0; n < row.pairs.size(); ++n) {
      const PlainPair& pair = row.pairs[n];
      const double weight = std::exp(pair.z - row.lse);
      add_pair(row, pair, weight * (d_p[n] - delta + d_lse),
               weight * (d_p_size[n] + delta_size + std::fabs(d_lse)), weight * d_o_size);
      ExpectedGradient* const d_v = address("v", {row.b, row.g, pair.j, 0});
      for (std::size_t c = 0; c < d_o.size(); ++c)
        d_v[c].add(pair.kept * weight * d_o[c], std::fabs(pair.kept * weight * d_o[c]), d_o[c]);
    }
    if (row.sink == -HUGE_VAL) return;
    const double weight = std::exp(row.sink - row.lse);
    element("sink", {row.h})
        .add(weight * (d_lse - delta), weight * (delta_size + std::fabs(d_lse)), weight * d_o_size);
  }

  /// `size` bounds the terms of d_z; o, which delta may come from, underflows with d_z_floor.
  void add_pair(const PlainRow& row, const PlainPair& pair, double d_z, double size,
                double d_z_floor) {
    const attest_attention& p = call_.p;
    const double d_a = d_z * pair.cap_slope;
    ExpectedGradient* const d_q = address("q", {row.b, row.h, row.i, 0});
    ExpectedGradient* const d_k = address("k", {row.b, row.g, pair.j, 0});
    for (std::size_t c = 0; c < pair.key.size(); ++c) {
      const double k = p.scale * pair.key[c], q = p.scale * row.query[c];
      d_q[c].add(d_a * k, size * std::fabs(k), k * (1 + d_z_floor));
      d_k[c].add(d_a * q, size * std::fabs(q), q * (1 + d_z_floor));
    }
    if (p.bias) element("bias", {row.b, row.h, row.i, pair.j}).add(d_z, size, d_z_floor);
    if (!p.alibi) return;
    const double term = (p.alibi_inside_softcap ? d_a : d_z) * pair.distance;
    Shape index{row.h};
    if (p.alibi_slopes->ndim == 2) index = {row.b, row.h};
    element("alibi_slopes", index)
        .add(term, size * std::fabs(pair.distance), d_z_floor * pair.distance);
  }

  /// dQ and dK of every real row; a turned channel has the errors of both that it mixes.
  void turn_back() {
    for (std::size_t n = 0; n < call_.sequences.size(); ++n) {
      const SequenceRows& rows = call_.sequences[n];
      for (std::int64_t i = rows.q0; i < rows.q1; ++i)
        turn_back("q", rows.b, i, i - rows.q0 + offset_of(call_, n));
      for (std::int64_t j = rows.k0; j < rows.k1; ++j) turn_back("k", rows.b, j, j - rows.k0);
    }
  }
  void turn_back(const std::string& name, std::int64_t b, std::int64_t row, std::int64_t position) {
    Tensor& t = call_[name];
    for (std::int64_t h = 0; h < t.extent(1); ++h) {
      ExpectedGradient* const channels = address(name, {b, h, row, 0});
      const std::vector<ExpectedGradient> before(channels, channels + t.extent(3));
      std::vector<double> values;
      for (const ExpectedGradient& x : before) values.push_back(x.value);
      values = turned(call_.p, values, position, -1);
      for (std::int64_t c = 0; c < t.extent(3); ++c) {
        channels[c].value = values[static_cast<std::size_t>(c)];
        const std::int64_t other = partner(call_.p, c);
        if (other == c) continue;
        channels[c].magnitude += before[static_cast<std::size_t>(other)].magnitude;
        channels[c].floor += before[static_cast<std::size_t>(other)].floor;
      }
    }
  }

  RandomCall& call_;
  std::map<std::string, std::vector<ExpectedGradient>> elements_;
};

}  // namespace attest::testing
