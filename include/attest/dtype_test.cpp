// SPDX-License-Identifier: Apache-2.0
// Every 16-bit pattern and every rounding boundary, against the definition of the formats:
// (-1)^s 2^(e - bias) (1 + m / 2^p), subnormals 2^(1 - bias) m / 2^p. Midpoints of neighbours are
// exact in double, so the expected side of each boundary is known without any rounding.
#include "attest/dtype.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  DType type;
  int exponent_bits, mantissa_bits;
  std::uint16_t (*encode)(double value);
  float (*decode)(std::uint16_t bits);

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
};

double by_definition(const Format& format, std::uint16_t bits) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign *
         std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
}

class SixteenBits : public testing::TestWithParam<Format> {};

TEST_P(SixteenBits, EveryPatternReadsAsDefinedAndWritesBack) {
  const Format& format = GetParam();
  for (int pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const int magnitude = bits & 0x7fff;
    const double value = format.decode(bits);
    if (magnitude < format.infinity()) {
      ASSERT_EQ(value, by_definition(format, bits)) << pattern;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << pattern;
      ASSERT_EQ(format.encode(value), bits);
    } else if (magnitude == format.infinity()) {
      ASSERT_EQ(value, (bits & 0x8000) != 0 ? -kInfinity : kInfinity);
      ASSERT_EQ(format.encode(value), bits);
    } else {
      // NaN: sign and payload stay, a signalling one becomes quiet.
      ASSERT_TRUE(std::isnan(value)) << pattern;
      ASSERT_EQ(format.encode(value), bits | 1 << (format.mantissa_bits - 1)) << pattern;
    }
  }
}

TEST_P(SixteenBits, RoundsToNearestEvenAtEveryBoundary) {
  const Format& format = GetParam();
  for (int pattern = 0; pattern < format.infinity(); ++pattern) {
    const auto lower = static_cast<std::uint16_t>(pattern);
    const auto upper = static_cast<std::uint16_t>(pattern + 1);
    const double low = by_definition(format, lower);
    // Beyond the largest number the next one would stand at 2^(emax + 1), where infinity stands.
    const double high = upper == format.infinity() ? std::ldexp(1, 1 << (format.exponent_bits - 1))
                                                   : by_definition(format, upper);
    const double middle = low + (high - low) / 2;
    const std::uint16_t even = pattern % 2 == 0 ? lower : upper;
    ASSERT_EQ(format.encode(middle), even) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(middle, 0)), lower) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(middle, kInfinity)), upper) << pattern;
    ASSERT_EQ(format.encode(-middle), even | 0x8000) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(-middle, 0)), lower | 0x8000) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(-middle, -kInfinity)), upper | 0x8000) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(low, kInfinity)), lower) << pattern;
    ASSERT_EQ(format.encode(std::nextafter(high, 0)), upper) << pattern;
  }
}

TEST_P(SixteenBits, ExtremesOfDouble) {
  const Format& format = GetParam();
  EXPECT_EQ(format.encode(std::numeric_limits<double>::max()), format.infinity());
  EXPECT_EQ(format.encode(-std::numeric_limits<double>::max()), format.infinity() | 0x8000);
  EXPECT_EQ(format.encode(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(format.encode(-std::numeric_limits<double>::denorm_min()), 0x8000);
  EXPECT_EQ(format.encode(std::numeric_limits<double>::min()), 0);
  EXPECT_EQ(format.encode(0.0), 0);
  EXPECT_EQ(format.encode(-0.0), 0x8000);
}

TEST_P(SixteenBits, LimitsAreThoseOfTheFormat) {
  const Format& format = GetParam();
  const DTypeLimits numbers = limits(format.type);
  const auto one = format.encode(1.0);
  const auto at = [&](int bits) { return by_definition(format, static_cast<std::uint16_t>(bits)); };
  EXPECT_EQ(numbers.unit_roundoff, (at(one + 1) - 1) / 2);
  EXPECT_EQ(numbers.half_min_subnormal, at(1) / 2);
  EXPECT_EQ(numbers.min_normal, at(1 << format.mantissa_bits));
  EXPECT_EQ(numbers.max_finite, at(format.infinity() - 1));
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Format{DType::f16, 5, 10, encode_f16, decode_f16},
                                         Format{DType::bf16, 8, 7, encode_bf16, decode_bf16}),
                         [](const auto& instance) {
                           return std::string(name(instance.param.type));
                         });

TEST(DType, RoundsOnceNotThroughFloat) {
  // Float would drop the 2^-40 and leave a tie, which then goes down to the even 1.
  const double above_the_tie = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(encode_f16(above_the_tie), 0x3c01);
  EXPECT_EQ(encode_f16(static_cast<float>(above_the_tie)), 0x3c00);
  EXPECT_EQ(encode_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

TEST(DType, TruncatingMaskIsNotMiscompiled) {
  // The value on which g++ 12.2 drops the truncation of `bits & 0xffff0000`.
  volatile float input = 0x1.3c0c96p+0f;
  EXPECT_EQ(decode_bf16(encode_bf16(input)), 0x1.3cp+0f);
}

TEST(DType, F32LimitsAreThoseOfFloat) {
  using Float = std::numeric_limits<float>;
  const DTypeLimits numbers = limits(DType::f32);
  EXPECT_EQ(numbers.unit_roundoff, Float::epsilon() / 2);
  EXPECT_EQ(numbers.half_min_subnormal, static_cast<double>(Float::denorm_min()) / 2);
  EXPECT_EQ(numbers.min_normal, Float::min());
  EXPECT_EQ(numbers.max_finite, Float::max());
  EXPECT_EQ(limits(DType::f64).unit_roundoff, std::numeric_limits<double>::epsilon() / 2);
  EXPECT_EQ(limits(DType::f64).max_finite, std::numeric_limits<double>::max());
}

TEST(DType, StoreAndLoadAtOddAddresses) {
  std::array<unsigned char, 12> bytes{};
  for (DType type : kAllDTypes) {
    bytes.fill(0xa5);
    store(bytes.data() + 1, type, -2.5);
    EXPECT_EQ(load(bytes.data() + 1, type), -2.5) << name(type);
    EXPECT_EQ(bytes[0], 0xa5);
    EXPECT_EQ(bytes[1 + size_of(type)], 0xa5) << name(type);
  }
}

TEST(DType, RoundToIsStoreThenLoad) {
  EXPECT_EQ(round_to(DType::f64, 0.1), 0.1);
  EXPECT_EQ(round_to(DType::f32, 0.1), 13421773 * 0x1p-27);
  EXPECT_EQ(round_to(DType::f16, 0.1), 1638 * 0x1p-14);
  EXPECT_EQ(round_to(DType::bf16, 0.1), 205 * 0x1p-11);
  EXPECT_EQ(round_to(DType::f16, 65519.99), 65504);
  EXPECT_EQ(round_to(DType::f16, 65520), kInfinity);
}

TEST(DType, NamesReadBack) {
  for (DType type : kAllDTypes) EXPECT_EQ(parse_dtype(name(type)), type);
  EXPECT_EQ(parse_dtype("fp32"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

static_assert(encode_f16(1.0) == 0x3c00 && decode_f16(0x3c00) == 1.0f);
static_assert(encode_bf16(-2.0) == 0xc000 && decode_bf16(0xc000) == -2.0f);

}  // namespace
}  // namespace attest
