// SPDX-License-Identifier: Apache-2.0
// The named precisions (docs/tolerance.md section 1, docs/declaration.md).
#include <array>

#include "attest/declaration.hpp"

namespace attest {
namespace {

constexpr double kTf32Roundoff = 0x1p-11;  // 10 stored bits; exponents as f32
constexpr double kTf32HalfSubnormal = 0x1p-137;

/// Everything that follows from the accumulator alone: exp to 4 u, gradual or flushed underflow,
/// cos and sin rounded once each.
PrecisionProfile accumulating_in(DType accumulator, DType output) {
  const DTypeLimits wide = limits(accumulator);
  PrecisionProfile profile;
  profile.u_acc = wide.unit_roundoff;
  profile.c_acc = 1;
  // An accumulation that underflows loses at most the smallest subnormal, also where it is flushed
  // gradually; half_min_subnormal is half of it, but for f64, where half is no double.
  profile.eta_acc =
      accumulator == DType::f64 ? wide.half_min_subnormal : 2 * wide.half_min_subnormal;
  profile.e_exp = 4 * wide.unit_roundoff;
  profile.eta_exp = wide.min_normal;
  profile.u_rope = 2 * wide.unit_roundoff;
  profile.max_acc = wide.max_finite;
  profile.lse_merged = true;
  profile.u_out = limits(output).unit_roundoff;
  profile.eta_out = limits(output).half_min_subnormal;
  return profile;
}

PrecisionProfile f32_preset(DType dtype) { return accumulating_in(DType::f32, dtype); }

/// P is rounded to the storage type before P.V; f32 storage is the accumulator's own type.
PrecisionProfile mma_f32acc_preset(DType dtype) {
  PrecisionProfile profile = accumulating_in(DType::f32, dtype);
  if (dtype == DType::f32) return profile;
  profile.u_p = limits(dtype).unit_roundoff;
  profile.eta_p = limits(dtype).half_min_subnormal;
  return profile;
}

/// q, k, P and V pass through tf32. For f32, u_in stands for all three inputs, V included
/// (docs/tolerance.md); f16 and bf16 values are exact in tf32, so only P is rounded there.
PrecisionProfile f32_tf32_preset(DType dtype) {
  PrecisionProfile profile = accumulating_in(DType::f32, dtype);
  if (dtype == DType::f32) profile.u_in = kTf32Roundoff, profile.eta_in = kTf32HalfSubnormal;
  profile.u_p = kTf32Roundoff;
  profile.eta_p = kTf32HalfSubnormal;
  return profile;
}

/// Scores, P and both accumulators in f16; f32 inputs are rounded to f16 on the way in.
PrecisionProfile fp16acc_preset(DType dtype) {
  const DTypeLimits half = limits(DType::f16);
  PrecisionProfile profile = accumulating_in(DType::f16, dtype);
  if (dtype == DType::f32)
    profile.u_in = half.unit_roundoff, profile.eta_in = half.half_min_subnormal;
  profile.lse_merged = false;  // partial results and their lse leave the chip in f32
  profile.u_score = half.unit_roundoff;
  profile.eta_score = half.half_min_subnormal;
  profile.max_score = half.max_finite;
  profile.u_p = half.unit_roundoff;
  profile.eta_p = half.half_min_subnormal;
  return profile;
}

struct Preset {
  std::string_view name;
  PrecisionProfile (*make)(DType dtype);
};
// The last but one has what mma_f32acc lacks: P stays in f32, which is also what `f32` says.
constexpr std::array<Preset, 5> kPresets{{{"f32", f32_preset},
                                          {"mma_f32acc", mma_f32acc_preset},
                                          {"mma_f32acc_f32p", f32_preset},
                                          {"f32_tf32", f32_tf32_preset},
                                          {"fp16acc", fp16acc_preset}}};

}  // namespace

std::optional<PrecisionProfile> precision_preset(std::string_view name, DType dtype) {
  for (const Preset& preset : kPresets)
    if (preset.name == name)
      return dtype == DType::f64 ? accumulating_in(DType::f64, DType::f64) : preset.make(dtype);
  return std::nullopt;
}

std::vector<std::string_view> precision_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

}  // namespace attest
