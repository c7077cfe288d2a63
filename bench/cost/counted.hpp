// SPDX-License-Identifier: Apache-2.0
// A number that counts what is done with it: the cost formulas of this folder are held against a
// run of the definition, and of the implementations, on it.
#pragma once

#include <cmath>
#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attest {

/// Operations of this thread so far: + - * / and exp, log, tanh, sqrt, pow, sin, cos count one
/// each. Comparisons, signs, conversions and copies count nothing.
inline std::int64_t& counted_operations() {
  thread_local std::int64_t count = 0;
  return count;
}

/// A T in memory and in value, so that a tensor of T can be read as one of these.
template <std::floating_point T>
struct Counted {
  T value = 0;

  constexpr Counted() = default;
  template <class A>
  requires std::is_arithmetic_v<A>
  constexpr Counted(A number) : value(static_cast<T>(number)) {}
  template <class U>
  constexpr explicit Counted(Counted<U> other) : value(static_cast<T>(other.value)) {}
  constexpr explicit operator double() const { return static_cast<double>(value); }

  static Counted result(T number) {
    ++counted_operations();
    return number;
  }
  friend Counted operator+(Counted a, Counted b) { return result(a.value + b.value); }
  friend Counted operator-(Counted a, Counted b) { return result(a.value - b.value); }
  friend Counted operator*(Counted a, Counted b) { return result(a.value * b.value); }
  friend Counted operator/(Counted a, Counted b) { return result(a.value / b.value); }
  friend constexpr Counted operator-(Counted a) { return -a.value; }
  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator*=(Counted b) { return *this = *this * b; }
  Counted& operator/=(Counted b) { return *this = *this / b; }
  friend constexpr bool operator==(Counted a, Counted b) { return a.value == b.value; }
  friend constexpr auto operator<=>(Counted a, Counted b) { return a.value <=> b.value; }

  friend Counted exp(Counted a) { return result(std::exp(a.value)); }
  friend Counted log(Counted a) { return result(std::log(a.value)); }
  friend Counted tanh(Counted a) { return result(std::tanh(a.value)); }
  friend Counted sqrt(Counted a) { return result(std::sqrt(a.value)); }
  friend Counted sin(Counted a) { return result(std::sin(a.value)); }
  friend Counted cos(Counted a) { return result(std::cos(a.value)); }
  friend Counted pow(Counted a, Counted b) { return result(std::pow(a.value, b.value)); }

  // As a storage type of impls/storage.hpp.
  friend Counted widen(Counted a) { return a; }
  friend Counted<double> wide(Counted a) { return Counted<double>(a.value); }
};

}  // namespace attest

template <class T>
struct std::numeric_limits<attest::Counted<T>> : std::numeric_limits<T> {
  static constexpr attest::Counted<T> infinity() { return std::numeric_limits<T>::infinity(); }
  static constexpr attest::Counted<T> quiet_NaN() { return std::numeric_limits<T>::quiet_NaN(); }
};
