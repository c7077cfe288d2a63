// SPDX-License-Identifier: Apache-2.0
// The table of docs/declaration.md, written out.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/declaration.hpp"

namespace attest {
namespace {

PrecisionProfile preset(std::string_view name, DType dtype) {
  const auto profile = precision_preset(name, dtype);
  EXPECT_TRUE(profile) << name;
  return profile.value_or(PrecisionProfile{});
}

PrecisionProfile plain_f32() {
  PrecisionProfile profile;
  profile.u_acc = 0x1p-24;
  profile.c_acc = 1;
  profile.lse_merged = true;
  profile.eta_acc = 0x1p-149;
  profile.u_out = 0x1p-24;
  profile.eta_out = 0x1p-150;
  profile.e_exp = 0x1p-22;
  profile.eta_exp = 0x1p-126;
  profile.u_rope = 0x1p-23;
  profile.max_acc = 0x1.fffffep+127;
  return profile;
}

TEST(PrecisionPreset, F32KeepsEverythingInTheAccumulator) {
  EXPECT_EQ(preset("f32", DType::f32), plain_f32());
  PrecisionProfile half = plain_f32();
  half.u_out = 0x1p-11;
  half.eta_out = 0x1p-25;
  EXPECT_EQ(preset("f32", DType::f16), half);
  PrecisionProfile brain = plain_f32();
  brain.u_out = 0x1p-8;
  brain.eta_out = 0x1p-134;
  EXPECT_EQ(preset("f32", DType::bf16), brain);
}

TEST(PrecisionPreset, MmaRoundsPToTheStorageType) {
  EXPECT_EQ(preset("mma_f32acc", DType::f32), plain_f32());
  PrecisionProfile half = preset("f32", DType::f16);
  half.u_p = 0x1p-11;
  half.eta_p = 0x1p-25;
  EXPECT_EQ(preset("mma_f32acc", DType::f16), half);
  PrecisionProfile brain = preset("f32", DType::bf16);
  brain.u_p = 0x1p-8;
  brain.eta_p = 0x1p-134;
  EXPECT_EQ(preset("mma_f32acc", DType::bf16), brain);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(preset("mma_f32acc_f32p", dtype), preset("f32", dtype)) << name(dtype);
}

TEST(PrecisionPreset, Tf32RoundsInputsAndP) {
  PrecisionProfile single = plain_f32();
  single.u_in = 0x1p-11;
  single.eta_in = 0x1p-137;
  single.u_p = 0x1p-11;
  single.eta_p = 0x1p-137;
  EXPECT_EQ(preset("f32_tf32", DType::f32), single);
  PrecisionProfile brain = preset("f32", DType::bf16);
  brain.u_p = 0x1p-11;
  brain.eta_p = 0x1p-137;
  EXPECT_EQ(preset("f32_tf32", DType::bf16), brain);
}

TEST(PrecisionPreset, Fp16AccumulatesInF16) {
  PrecisionProfile half;
  half.u_acc = 0x1p-11;
  half.c_acc = 1;
  half.eta_acc = 0x1p-24;
  half.u_score = 0x1p-11;
  half.eta_score = 0x1p-25;
  half.max_score = 65504;
  half.u_p = 0x1p-11;
  half.eta_p = 0x1p-25;
  half.u_out = 0x1p-11;
  half.eta_out = 0x1p-25;
  half.e_exp = 0x1p-9;
  half.eta_exp = 0x1p-14;
  half.u_rope = 0x1p-10;
  half.max_acc = 65504;
  EXPECT_EQ(preset("fp16acc", DType::f16), half);
  EXPECT_EQ(preset("fp16acc", DType::f32).u_in, 0x1p-11);
  EXPECT_EQ(preset("fp16acc", DType::f32).eta_in, 0x1p-25);
  EXPECT_EQ(preset("fp16acc", DType::bf16).u_in, 0);
  EXPECT_EQ(preset("fp16acc", DType::bf16).u_out, 0x1p-8);
}

TEST(PrecisionPreset, F64IsF64WhateverTheName) {
  PrecisionProfile wide;
  wide.u_acc = 0x1p-53;
  wide.c_acc = 1;
  wide.lse_merged = true;
  wide.eta_acc = 0x1p-1074;
  wide.u_out = 0x1p-53;
  wide.eta_out = 0x1p-1074;
  wide.e_exp = 0x1p-51;
  wide.eta_exp = 0x1p-1022;
  wide.u_rope = 0x1p-52;
  wide.max_acc = 0x1.fffffffffffffp+1023;
  for (std::string_view name : precision_preset_names()) EXPECT_EQ(preset(name, DType::f64), wide);
}

TEST(PrecisionPreset, UnknownNames) {
  EXPECT_FALSE(precision_preset("f16", DType::f16));
  EXPECT_FALSE(precision_preset("", DType::f64));
  const auto names = precision_preset_names();
  EXPECT_EQ(names.size(), 5u);
  EXPECT_EQ(std::count(names.begin(), names.end(), "f32"), 1);
}

}  // namespace
}  // namespace attest
