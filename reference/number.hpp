// SPDX-License-Identifier: Apache-2.0
// What the formulas of the definition ask of a number type. double and long double have it, and so
// have Boost's multiprecision numbers (reference/multiprecision.hpp).
#pragma once

#include <cmath>
#include <concepts>
#include <limits>

namespace attest {
namespace detail {

using std::cos, std::exp, std::log, std::pow, std::sin, std::sqrt, std::tanh;

template <class T>
concept HasFunctions = requires(const T x) {
  { cos(x) } -> std::convertible_to<T>;
  { exp(x) } -> std::convertible_to<T>;
  { log(x) } -> std::convertible_to<T>;
  { pow(x, x) } -> std::convertible_to<T>;
  { sin(x) } -> std::convertible_to<T>;
  { sqrt(x) } -> std::convertible_to<T>;
  { tanh(x) } -> std::convertible_to<T>;
};

}  // namespace detail

/// An ordered field with the elementary functions, infinities and NaN, and an exact conversion from
/// double. The functions are found by argument, so code that calls them says `using std::exp;`.
template <class T>
concept Number = detail::HasFunctions<T> && std::constructible_from<T, double> &&
    std::totally_ordered<T> && std::numeric_limits<T>::has_infinity &&
    std::numeric_limits<T>::has_quiet_NaN && requires(T x) {
  { x + x } -> std::convertible_to<T>;
  { x - x } -> std::convertible_to<T>;
  { x* x } -> std::convertible_to<T>;
  { x / x } -> std::convertible_to<T>;
  { -x } -> std::convertible_to<T>;
  x += x;
};

template <Number T>
T infinity() {
  return std::numeric_limits<T>::infinity();
}

template <Number T>
T quiet_nan() {
  return std::numeric_limits<T>::quiet_NaN();
}

}  // namespace attest
