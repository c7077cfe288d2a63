// SPDX-License-Identifier: Apache-2.0
// Choices from RapidCheck's counter-based Random: the same key gives the same throws, on every
// machine and whatever else was drawn before.
#pragma once

#include <rapidcheck/Random.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace attest {

class Dice {
 public:
  Dice(std::uint64_t seed, std::string_view stream, std::uint64_t index)
      : random_(rc::Random::Key{seed, hash(stream), index, 0}) {}

  std::uint64_t bits() { return random_.next(); }
  /// In [0, count), count >= 1. The bias of the remainder is below 2^-40 for the counts used here.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + below(last - first + 1);
  }
  bool one_in(std::int64_t count) { return below(count) == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }

 private:
  /// FNV-1a.
  static std::uint64_t hash(std::string_view text) {
    std::uint64_t state = 0xcbf29ce484222325u;
    for (const char letter : text)
      state = (state ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
    return state;
  }
  rc::Random random_;
};

}  // namespace attest
