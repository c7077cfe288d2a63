// SPDX-License-Identifier: Apache-2.0
// Every requirement of gradients holds for an honest kernel, and is broken by one with a mistake of
// its kind.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/case_line.hpp"
#include "harness/subject.hpp"
#include "harness/suite.hpp"
#include "properties/gradient_test_kernel.hpp"
#include "properties/run_requirement_test.hpp"

namespace attest {
namespace {

constexpr const char* kDeclaration =
    "dtype=f32 v_head_dim=any base=full,causal align=top_left,bottom_right gqa mask bias scale "
    "sink dropout softcap alibi=signed lse layout=any precision=f32 backward=all deterministic "
    "masked_nan_safe";
constexpr std::uint64_t kCases = 150;

struct Broken {
  const char* id;
  GradientBreak broken;
};

constexpr Broken kBroken[] = {
    {"GRAD-BIAS", GradientBreak::bias_gradient_not_summed},
    {"GRAD-BOUNDS", GradientBreak::q_modified},
    {"GRAD-DIFFERENCES", GradientBreak::delta_dropped},
    {"GRAD-DIFFERENCES", GradientBreak::dq_scale_missing},
    {"GRAD-DIFFERENCES", GradientBreak::dk_scale_missing},
    {"GRAD-DIFFERENCES", GradientBreak::softcap_derivative_missing},
    {"GRAD-DIFFERENCES", GradientBreak::sink_gradient_sign},
    {"GRAD-DIFFERENCES", GradientBreak::bias_gradient_not_summed},
    {"GRAD-DOUT-LAYOUT", GradientBreak::d_o_read_as_o},
    {"GRAD-DROPOUT", GradientBreak::dropout_of_next_key},
    {"GRAD-GQA-REPEAT", GradientBreak::last_head_of_group_alone},
    {"GRAD-K", GradientBreak::dk_scale_missing},
    {"GRAD-KEY-ORDER", GradientBreak::first_key_twice_in_dv},
    {"GRAD-LINEAR", GradientBreak::small_d_o_is_zero},
    {"GRAD-NAN-VISIBLE", GradientBreak::nan_d_o_is_zero},
    {"GRAD-NANSAFE", GradientBreak::hidden_keys_times_zero},
    {"GRAD-NOLEAK", GradientBreak::hidden_keys_in_dv},
    {"GRAD-Q", GradientBreak::dq_scale_missing},
    {"GRAD-RUN", GradientBreak::comes_and_goes},
    {"GRAD-SHIFT", GradientBreak::weights_from_unshifted_scores},
    {"GRAD-SINK", GradientBreak::sink_gradient_sign},
    {"GRAD-SLOPES", GradientBreak::slope_gradient_of_distance},
    {"GRAD-THREADS", GradientBreak::drifts_with_threads},
    {"GRAD-V", GradientBreak::first_key_twice_in_dv},
    {"GRAD-WRITTEN", GradientBreak::last_dv_unwritten},
    {"GRAD-ZERO-ROWS", GradientBreak::dead_rows_move_dk},
};

/// In this process; so no mistake may read outside the tensors.
std::unique_ptr<Subject> open_kernel() {
  static const attest_plugin plugin =
      detail::table<GradientTestKernel>("gradient_test", "1.0", kDeclaration);
  OpenError error;
  auto subject = open_in_process(&plugin, error);
  if (!subject) throw std::runtime_error(error.message);
  return subject;
}

RequirementOutcome run(const Requirement& requirement, GradientBreak broken) {
  EXPECT_EQ(requirement.operation, Operation::backward);
  GradientTestKernel::broken = broken;
  const RequirementOutcome outcome = run_requirement(requirement, *open_kernel(), kCases);
  GradientTestKernel::broken = GradientBreak::none;
  return outcome;
}

class GradientRequirement : public testing::TestWithParam<Broken> {};

TEST_P(GradientRequirement, HoldsForAnHonestKernel) {
  const Requirement* requirement = find_requirement(GetParam().id);
  ASSERT_NE(requirement, nullptr);
  const RequirementOutcome outcome = run(*requirement, GradientBreak::none);
  EXPECT_EQ(outcome.broken, 0) << outcome.first;
  // One that is never said would hold too.
  EXPECT_GE(outcome.judged, 15);
}

TEST_P(GradientRequirement, IsBrokenByItsMistake) {
  const Requirement* requirement = find_requirement(GetParam().id);
  ASSERT_NE(requirement, nullptr);
  const RequirementOutcome outcome = run(*requirement, GetParam().broken);
  EXPECT_GE(outcome.broken, 1) << "of " << outcome.judged;
}

INSTANTIATE_TEST_SUITE_P(All, GradientRequirement, testing::ValuesIn(kBroken), [](const auto& row) {
  std::string id = row.param.id;
  std::replace(id.begin(), id.end(), '-', '_');
  return id + "_" + std::to_string(row.index);
});

TEST(GradientRequirements, EveryOneIsInTheTable) {
  for (const Requirement& requirement : requirements()) {
    if (requirement.id == "GRAD-MEMORY") continue;  // of a test of its own
    if (requirement.operation != Operation::backward) continue;
    const bool listed = std::any_of(std::begin(kBroken), std::end(kBroken),
                                    [&](const Broken& row) { return row.id == requirement.id; });
    EXPECT_TRUE(listed) << requirement.id;
  }
}

}  // namespace
}  // namespace attest
