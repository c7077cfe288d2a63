// SPDX-License-Identifier: Apache-2.0
// The number types the definition is instantiated on. Included by definition.cpp, rope_angles.cpp
// and their tests alone: Boost costs seconds per translation unit.
//
// MPFR on the stack without expression templates takes 48 ns a multiply-add and 2 us an exp at 50
// digits, 3 to 5 times faster than cpp_bin_float, which is kept as a second opinion.
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <utility>

#include "reference/attention.hpp"

namespace attest {

namespace mp = boost::multiprecision;

template <unsigned kDigits>
using Mpfr = mp::number<mp::mpfr_float_backend<kDigits, mp::allocate_stack>, mp::et_off>;
using Mpfr50 = Mpfr<50>;
using Mpfr100 = Mpfr<100>;
using BinFloat50 = mp::number<mp::cpp_bin_float<50>, mp::et_off>;

extern template ForwardRow<Mpfr50> forward_row<Mpfr50>(const AttentionProblem&,
                                                       const AttentionInputs&, const Rows&,
                                                       std::int64_t, std::int64_t, std::int64_t);
extern template ForwardRow<Mpfr100> forward_row<Mpfr100>(const AttentionProblem&,
                                                         const AttentionInputs&, const Rows&,
                                                         std::int64_t, std::int64_t, std::int64_t);
extern template ForwardRow<BinFloat50> forward_row<BinFloat50>(const AttentionProblem&,
                                                               const AttentionInputs&, const Rows&,
                                                               std::int64_t, std::int64_t,
                                                               std::int64_t);

/// MPFR keeps constants and memory for each thread, about a kilobyte, and frees them for none: done
/// here where a thread ends that has computed with it.
inline void free_caches_with_thread() {
  struct Caches {
    ~Caches() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };
  thread_local const Caches caches;
  static_cast<void>(caches);
}

/// The double nearest to x, and the double nearest to what that leaves.
template <Number T>
std::pair<double, double> split(const T& x) {
  const auto high = static_cast<double>(x);
  const double low = std::isfinite(high) ? static_cast<double>(T(x - T(high))) : 0;
  return {high, low};
}

}  // namespace attest
