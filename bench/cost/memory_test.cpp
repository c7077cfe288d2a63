// SPDX-License-Identifier: Apache-2.0
// Peak memory by the formulas of this folder against what the kernel host's allocator counted.
#include <gtest/gtest.h>

#include "attest/case_line.hpp"
#include "bench/cost/attention_cost.hpp"
#include "harness/data.hpp"
#include "harness/observe.hpp"

namespace attest {
namespace {

class PeakMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(PeakMemory, IsWithinATenthOfTheModel) {
  const auto spec = resolve_subject(GetParam());
  ASSERT_TRUE(spec) << spec.error();
  OpenError error;
  const auto subject = open_in_host(*spec, error);
  ASSERT_TRUE(subject) << error.message;
  const AttentionCostModel* model = find_attention_cost_model(GetParam());
  ASSERT_TRUE(model);
  for (const char* line : {"attention.forward lq=1024 lk=1024 d=64 base=causal",
                           "attention.forward lq=2048 lk=2048 d=64 base=causal",
                           "attention.forward dtype=bf16 hq=4 hkv=1 lq=512 lk=1500 d=128",
                           "attention.forward dtype=f64 hq=2 hkv=2 lq=700 lk=700 d=80 dv=32",
                           "attention.backward lq=512 lk=512 d=64 base=causal",
                           "attention.backward lq=1024 lk=1024 d=64 base=causal",
                           "attention.backward dtype=f16 hq=4 hkv=2 lq=300 lk=600 d=96"}) {
    const auto problem = parse_case(line);
    ASSERT_TRUE(problem) << line;
    // In a process that has made no other call: kernels keep their memory for the next one.
    subject->restart();
    const AttentionInputs inputs = make_inputs(*problem);
    Observation seen;
    if (problem->operation == Operation::backward) {
      AttentionInputs with_forward = inputs;
      take_forward(*problem, observe(*subject, forward_of(*problem), inputs), with_forward);
      subject->restart();
      seen = observe(*subject, *problem, with_forward);
    } else {
      seen = observe(*subject, *problem, inputs);
    }
    ASSERT_TRUE(seen.ok()) << line;
    if (!seen.call.peak_bytes) GTEST_SKIP() << "memory cannot be measured here";
    const auto cost = attention_cost(*model, *problem);
    ASSERT_TRUE(cost);
    EXPECT_NEAR(static_cast<double>(*seen.call.peak_bytes) / cost->extra_bytes, 1, 0.1) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(, PeakMemory, ::testing::Values("naive", "chunked"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace attest
