// SPDX-License-Identifier: Apache-2.0
// The four storage types and their exact conversions.
//
// Every value travels through double, in which f32, f16 and bf16 are exact. encode() rounds a
// double to the storage type once, to nearest even: going through float first would round twice and
// be wrong for about one f16 value in 2^13. The conversions are integer arithmetic on the bits,
// because g++ 12.2 miscompiles the shorter "mask the low half of a float" idiom
// (docs/decisions.md), and because a conformance suite must not depend on the rounding mode.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace attest {

enum class DType : std::uint8_t { f64, f32, f16, bf16 };

inline constexpr DType kAllDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

constexpr std::string_view name(DType type) {
  switch (type) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  return "?";
}

constexpr std::optional<DType> parse_dtype(std::string_view text) {
  for (DType type : kAllDTypes)
    if (name(type) == text) return type;
  return std::nullopt;
}

/// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2;
}

/// What a storage type can hold. `unit_roundoff` is half the distance from 1 to the next number;
/// `half_min_subnormal` is the largest rounding error near zero.
struct DTypeLimits {
  double unit_roundoff;
  double half_min_subnormal;
  double min_normal;
  double max_finite;
};

constexpr DTypeLimits limits(DType type) {
  switch (type) {
    // Half of f64's smallest subnormal is not a double; the smallest subnormal stands for it.
    case DType::f64: return {0x1p-53, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp+1023};
    case DType::f32: return {0x1p-24, 0x1p-150, 0x1p-126, 0x1.fffffep+127};
    case DType::f16: return {0x1p-11, 0x1p-25, 0x1p-14, 65504.0};
    case DType::bf16: return {0x1p-8, 0x1p-134, 0x1p-126, 0x1.fep+127};
  }
  return {};
}

namespace detail {

/// Rounds to an IEEE format of 16 bits with the given field widths: nearest even, overflow to
/// infinity, NaN stays NaN (quiet, upper payload bits kept), gradual underflow.
template <int kExponentBits, int kMantissaBits>
constexpr std::uint16_t encode_16(double value) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr std::uint64_t kInfinity = ((std::uint64_t{1} << kExponentBits) - 1) << kMantissaBits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = bits >> 63 << (kExponentBits + kMantissaBits);
  const std::uint64_t magnitude = bits & 0x7fff'ffff'ffff'ffffu;
  if (magnitude > 0x7ff0'0000'0000'0000u) {
    const std::uint64_t payload = (magnitude & 0x000f'ffff'ffff'ffffu) >> (52 - kMantissaBits);
    const std::uint64_t quiet = std::uint64_t{1} << (kMantissaBits - 1);
    return static_cast<std::uint16_t>(sign | kInfinity | quiet | payload);
  }
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent > kBias) return static_cast<std::uint16_t>(sign | kInfinity);
  const bool subnormal = exponent < 1 - kBias;
  const int shift = 52 - kMantissaBits + (subnormal ? 1 - kBias - exponent : 0);
  if (shift > 54) return static_cast<std::uint16_t>(sign);
  const std::uint64_t significand =
      subnormal ? (magnitude & 0x000f'ffff'ffff'ffffu) | 0x0010'0000'0000'0000u
                : magnitude - (static_cast<std::uint64_t>(1023 - kBias) << 52);
  // Carrying out of the significand moves to the next exponent, up to infinity: the encoding is
  // monotone.
  const std::uint64_t tie = (std::uint64_t{1} << (shift - 1)) - 1 + ((significand >> shift) & 1);
  return static_cast<std::uint16_t>(sign | ((significand + tie) >> shift));
}

}  // namespace detail

constexpr std::uint16_t encode_f16(double value) { return detail::encode_16<5, 10>(value); }
constexpr std::uint16_t encode_bf16(double value) { return detail::encode_16<8, 7>(value); }

constexpr float decode_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr float decode_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    // A subnormal is mantissa * 2^-24, exact in float.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t widened = exponent == 31 ? 255u : exponent + (127u - 15u);
  return std::bit_cast<float>(sign | widened << 23 | mantissa << 13);
}

/// Reads one element. `address` need not be aligned.
inline double load(const void* address, DType type) {
  std::uint16_t half = 0;
  switch (type) {
    case DType::f64: {
      double value;
      std::memcpy(&value, address, sizeof value);
      return value;
    }
    case DType::f32: {
      float value;
      std::memcpy(&value, address, sizeof value);
      return value;
    }
    case DType::f16: std::memcpy(&half, address, sizeof half); return decode_f16(half);
    case DType::bf16: std::memcpy(&half, address, sizeof half); return decode_bf16(half);
  }
  return 0;
}

/// Writes one element, rounded once to nearest even. `address` need not be aligned.
inline void store(void* address, DType type, double value) {
  switch (type) {
    case DType::f64: std::memcpy(address, &value, sizeof value); return;
    case DType::f32: {
      const auto narrow = static_cast<float>(value);
      std::memcpy(address, &narrow, sizeof narrow);
      return;
    }
    case DType::f16: {
      const std::uint16_t half = encode_f16(value);
      std::memcpy(address, &half, sizeof half);
      return;
    }
    case DType::bf16: {
      const std::uint16_t half = encode_bf16(value);
      std::memcpy(address, &half, sizeof half);
      return;
    }
  }
}

/// The nearest value the storage type holds.
inline double round_to(DType type, double value) {
  switch (type) {
    case DType::f64: return value;
    case DType::f32: return static_cast<float>(value);
    case DType::f16: return decode_f16(encode_f16(value));
    case DType::bf16: return decode_bf16(encode_bf16(value));
  }
  return value;
}

}  // namespace attest
