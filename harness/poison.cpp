// SPDX-License-Identifier: Apache-2.0
#include "harness/poison.hpp"

#include <array>
#include <cstring>

namespace attest {

namespace {

struct Pattern {
  std::uint64_t nan, finite_even, finite_odd;
};

/// By Element. The finite numbers are +-1e300, +-1e30, +-60000 and +-1e38 (bf16), rounded.
constexpr std::array<Pattern, 6> kPatterns{{
    {0x7ff8'dead'beef'cafe, 0x7e37'e43c'8800'759c, 0xfe37'e43c'8800'759c},
    {0x7fde'adbe, 0x7149'f2ca, 0xf149'f2ca},
    {0x7f5a, 0x7b53, 0xfb53},
    {0x7fda, 0x7e97, 0xfe97},
    {0xa5, 0x5a, 0x5a},
    {0x7f7f'7f7f, 0x8080'8080, 0x8080'8080},
}};

}  // namespace

std::uint64_t poison_bits(Element element, Poison poison, std::int64_t distance) {
  const Pattern& pattern = kPatterns[static_cast<std::size_t>(element)];
  if (poison == Poison::nan) return pattern.nan;
  return (distance & 1) ? pattern.finite_odd : pattern.finite_even;
}

void fill_poison(std::byte* begin, std::byte* end, const std::byte* first, Element element,
                 Poison poison) {
  // Two elements divide 16 bytes in every type: one period, turned to where `begin` stands in it.
  constexpr std::size_t kPeriod = 16;
  const auto size = static_cast<std::size_t>(size_of(element));
  std::array<std::byte, 2 * kPeriod> period;
  for (std::size_t at = 0; at < period.size(); at += size) {
    const std::uint64_t bits = poison_bits(element, poison, static_cast<std::int64_t>(at / size));
    std::memcpy(period.data() + at, &bits, size);  // little-endian, as all supported machines are
  }
  const auto turn = static_cast<std::size_t>((begin - first) & std::ptrdiff_t{kPeriod - 1});
  const std::byte* source = period.data() + turn;
  std::byte* to = begin;
  for (; end - to >= std::ptrdiff_t{kPeriod}; to += kPeriod) std::memcpy(to, source, kPeriod);
  std::memcpy(to, source, static_cast<std::size_t>(end - to));
}

}  // namespace attest
