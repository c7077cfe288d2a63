// SPDX-License-Identifier: Apache-2.0
// The plain data that one query row of the fast oracle passes through: the scores of its visible
// keys, the error terms of docs/tolerance.md section 3 per key, and sums per row and per channel.
// Arrays, not arrays of structs: the keys (or the channels) lie across SIMD lanes.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>

namespace attest {

/// Room behind the last element of every array, so that a full vector can be loaded and stored
/// there: 64 doubles are the widest vector that Highway has.
inline constexpr std::size_t kMaxLanes = 64;

/// An aligned array that grows and is never freed during a run: a row allocates nothing. reserve()
/// does not keep the contents.
template <class T>
class Buffer {
 public:
  T* reserve(std::size_t count) {
    if (count + kMaxLanes > capacity_) {
      capacity_ = count + count / 2 + 2 * kMaxLanes;
      data_ = hwy::AllocateAligned<T>(capacity_);
      for (std::size_t x = 0; x < capacity_; ++x) data_[x] = T{};
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  std::size_t capacity_ = 0;
  hwy::AlignedFreeUniquePtr<T[]> data_;
};

/// The score of the lanes behind the last key: low enough that its weight is exactly 0, high enough
/// that no term overflows. A real score below kNoScore / 10 has no weight in any format either.
inline constexpr double kNoScore = -1e30;

/// Section 2 of docs/tolerance.md: one row, its visible keys x = 0 .. n-1 in ascending order.
struct RowScores {
  std::size_t n = 0;
  Buffer<std::int32_t> key;    ///< row of k
  Buffer<std::int32_t> value;  ///< row of Head::v; the row of zeros where dropout takes the key
  Buffer<double> s;            ///< scale q.k; before weigh(): q.k
  Buffer<double> abs_dot;      ///< A = |scale| sum |q_c k_c|; before weigh(): without the scale
  Buffer<double> square_dot;   ///< Q2 = scale^2 sum (q_c k_c)^2; likewise
  Buffer<double> rope_abs, rope_square;  ///< the same over the norms of rotated pairs; with RoPE
  Buffer<double> damping, damping_low;   ///< t = 1 - tanh^2; with softcap
  Buffer<double> capped;                 ///< c of docs/semantics.md section 2
  Buffer<double> alibi, bias;            ///< with ALiBi, with a bias
  Buffer<double> z, p;
  Buffer<double> p_error;  ///< bound on the absolute error of p: see radius.hpp
  Buffer<double> s_low, weight_high, weight_low;  ///< double-double: low part of q.k, exp(z - m)
  double m = 0, l = 0, lse = 0, lse_low = 0;      ///< running maximum, sum exp(z - m), m + ln l
  double l_low = 0;
  bool has_sink = false;
  bool hidden_by_bias = false;  ///< a bias of -inf hides an otherwise visible key
  double sink = 0, sink_p = 0;
  double max_abs_dot = 0;  ///< largest sum |q_c k_c|, without the scale
  double max_score = 0;    ///< largest of |z| and |s| over keys without a finite mask value

  void reserve(std::size_t keys) {
    key.reserve(keys);
    value.reserve(keys);
    for (Buffer<double>* buffer :
         {&s, &abs_dot, &square_dot, &rope_abs, &rope_square, &damping, &damping_low, &capped,
          &alibi, &bias, &z, &p, &p_error, &s_low, &weight_high, &weight_low})
      buffer->reserve(keys);
  }
};

/// Sections 3.1 and 3.2, per key: what the sums over channels are weighted with.
struct RowTerms {
  Buffer<double> delta;        ///< Delta, the relative error of one weight
  Buffer<double> before_cap;   ///< e of docs/tolerance.md 3.1; with softcap
  Buffer<double> spread;       ///< p D, or the largest weight that the key can have
  Buffer<double> noise;        ///< p sqrt(vz)
  Buffer<double> eps;          ///< rounding of one P on its way to P.V
  Buffer<double> along_scale;  ///< p s t
  Buffer<double> along_alibi;  ///< p t alibi; with ALiBi
  Buffer<double> lone_noise;   ///< noise, times sqrt 2 where the key is in no group: see groups.hpp
  Buffer<double> lone_eps;     ///< eps, likewise

  void reserve(std::size_t keys) {
    for (Buffer<double>* buffer : {&delta, &before_cap, &spread, &noise, &eps, &along_scale,
                                   &along_alibi, &lone_noise, &lone_eps})
      buffer->reserve(keys);
  }
};

/// What section 3 needs of the row as a whole. The sink is in all of them but the groups.
struct RowSums {
  double n = 0;  ///< visible keys
  double m = 0, l = 1, lse = 0;
  double max_updates = 0;  ///< R
  double n_l = 0, small_l = 0;
  double growth = 0;   ///< max(log1p(sum p expm1 Delta), -log1p(sum p expm1(-Delta)))
  double eps_sum = 0;  ///< sum of the rounding errors of P
  double along_scale = 0, along_alibi = 0;  ///< sum p s t, sum p t alibi
  double coherent = 0;                      ///< sum p t (rms error that all keys share through q)
  double max_p_delta = 0;
  bool is_uncertain = false;                ///< spread is the largest weight: docs/tolerance.md 3.2
  double noise_square = 0, eps_square = 0;  ///< independent sums of (p sqrt vz)^2 and eps^2
  double noise_grouped = 0, eps_grouped = 0;  ///< independent plus grouped, without the sink
  double sink_spread = 0, sink_noise = 0;     ///< p D and p sqrt(vz) of the sink
  bool has_sink = false;
  double kappa = 1;
};

/// Sections 3.3 and 3.4: sums over the keys for every channel, in units of Head::unit.
struct ChannelSums {
  Buffer<double> o, o_low;
  Buffer<double> abs_sum;                      ///< X = sum p|x|
  Buffer<double> square_sum;                   ///< W2 = sum p^2 x^2
  Buffer<double> error_sum;                    ///< sum p_error |x|
  Buffer<double> spread;                       ///< sum p D |x - o|
  Buffer<double> reach;                        ///< max |x - o|
  Buffer<double> distance;                     ///< sum |x - o|
  Buffer<double> rounding;                     ///< sum eps max(|x|, |x - o|)
  Buffer<double> num_small, small, abs_small;  ///< keys with p|x| <= 2u X: count, sum p x, sum p|x|
  Buffer<double> along_scale, along_alibi;     ///< sum p s t (x - o), sum p t alibi (x - o)
  Buffer<double> noise_variance;               ///< V1
  Buffer<double> rounding_variance;            ///< VP

  void reserve(std::size_t channels) {
    for (Buffer<double>* buffer : {&o, &o_low, &abs_sum, &square_sum, &error_sum, &spread, &reach,
                                   &distance, &rounding, &num_small, &small, &abs_small,
                                   &along_scale, &along_alibi, &noise_variance, &rounding_variance})
      buffer->reserve(channels);
  }
};

}  // namespace attest
