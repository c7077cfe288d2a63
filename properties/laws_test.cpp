// SPDX-License-Identifier: Apache-2.0
// Every law holds for an honest kernel, and is broken by a kernel with a mistake of its kind.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/case_line.hpp"
#include "harness/generate.hpp"
#include "harness/subject.hpp"
#include "properties/law_support.hpp"
#include "properties/law_test_kernel.hpp"

namespace attest {
namespace {

constexpr const char* kDeclaration =
    "dtype=f32 v_head_dim=any base=full,causal align=top_left,bottom_right,q_offset window gqa "
    "seqlens_q seqlens_k left_pad_q left_pad_k packed mask blocks bias bias_neg_inf scale sink "
    "dropout alibi=absolute,signed,key_anchored rope=interleaved,half rope_partial "
    "rope_scaling=linear,ntk softcap alibi_inside_softcap lse layout=any "
    "precision=f32";
constexpr std::uint64_t kCases = 120;

struct Broken {
  const char* id;
  Break broken;
};

/// One mistake for each law.
constexpr Broken kBroken[] = {
    {"LAW-ALIBI-BIAS", Break::alibi_sign_flipped},
    {"LAW-ALIBI-CHANNEL", Break::alibi_never_inside_softcap},
    {"LAW-BATCH-ORDER", Break::mask_of_first_sequence},
    {"LAW-BLOCKS-MASK", Break::block_column_by_rows},
    {"LAW-BROADCAST", Break::broadcast_mask_on_query_axis},
    {"LAW-CHANNEL-ORDER", Break::last_channel_lost},
    {"LAW-DROPOUT", Break::dropped_before_sum},
    {"LAW-DUPLICATE-KEYS", Break::only_eight_keys},
    {"LAW-GQA-REPEAT", Break::kv_head_by_modulo},
    {"LAW-HEAD-ORDER", Break::kv_head_by_modulo},
    {"LAW-KEY-ORDER", Break::first_key_counts_twice},
    {"LAW-LAYOUT", Break::v_read_as_contiguous},
    {"LAW-MASK-BIAS", Break::mask_as_minus_two},
    {"LAW-PACKED", Break::segments_leak},
    {"LAW-PADDING", Break::left_pad_ignored},
    {"LAW-POSITION-SHIFT", Break::positions_wrap},
    {"LAW-QUERY-CHUNKS", Break::offset_ignored},
    {"LAW-ROPE-DIAGONAL", Break::rope_ignores_offset},
    {"LAW-ROPE-LINEAR", Break::rope_scaling_ignored},
    {"LAW-ROPE-NTK", Break::rope_scaling_ignored},
    {"LAW-ROPE-PAIRING", Break::rope_always_on_halves},
    {"LAW-RULE-MASK", Break::causal_plus_one},
    {"LAW-SCALE", Break::scale_ignored},
    {"LAW-SHIFT", Break::max_not_subtracted},
    {"LAW-SINK-KEY", Break::sink_scaled},
    {"LAW-SPLIT-MERGE", Break::last_of_odd_keys_lost},
    {"LAW-V-LINEAR", Break::v_clamped},
    {"LAW-WINDOW", Break::causal_forgets_window},
};

/// In this process; so no mistake may read outside the tensors.
std::unique_ptr<Subject> open_kernel() {
  static const attest_plugin plugin = detail::table<LawTestKernel>("law_test", "1.0", kDeclaration);
  OpenError error;
  auto subject = open_in_process(&plugin, error);
  if (!subject) throw std::runtime_error(error.message);
  return subject;
}

struct Outcome {
  int cases = 0, judged = 0, broken = 0;
  std::string first;
};

Outcome run(const Requirement& law, Break broken) {
  LawTestKernel::broken = broken;
  const std::unique_ptr<Subject> subject = open_kernel();
  Outcome outcome;
  for (std::uint64_t n = 0; n < kCases; ++n) {
    const auto problem =
        law.adapt(draw(subject->declaration(), 1, law.id, n), subject->declaration());
    if (!problem) continue;
    EXPECT_FALSE(problem_error(*problem)) << print_case(*problem);
    EXPECT_FALSE(not_declared(subject->declaration(), *problem)) << print_case(*problem);
    // Shrinking adapts what it has adapted before.
    EXPECT_EQ(law.adapt(*problem, subject->declaration()), problem) << print_case(*problem);
    CaseContext context(*subject);
    const CaseResult result = law.check(context, *problem);
    ++outcome.cases;
    if (result.verdict == Verdict::not_judged) continue;
    ++outcome.judged;
    if (result.verdict == Verdict::pass) continue;
    EXPECT_EQ(result.reason, Reason::law_broken) << result.detail;
    if (outcome.broken++ == 0) outcome.first = print_case(*problem) + "\n" + result.detail;
  }
  LawTestKernel::broken = Break::none;
  return outcome;
}

class Law : public testing::TestWithParam<Broken> {};

TEST_P(Law, HoldsForAnHonestKernel) {
  const Requirement* law = find_requirement(GetParam().id);
  ASSERT_NE(law, nullptr);
  const Outcome outcome = run(*law, Break::none);
  EXPECT_EQ(outcome.broken, 0) << outcome.first;
  // A law that is never said would hold too.
  EXPECT_GE(outcome.judged, static_cast<int>(kCases) / 4) << outcome.cases << " cases";
}

TEST_P(Law, IsBrokenByItsMistake) {
  const Requirement* law = find_requirement(GetParam().id);
  ASSERT_NE(law, nullptr);
  const Outcome outcome = run(*law, GetParam().broken);
  EXPECT_GE(outcome.broken, 1) << "of " << outcome.judged;
}

INSTANTIATE_TEST_SUITE_P(All, Law, testing::ValuesIn(kBroken), [](const auto& row) {
  std::string id = row.param.id;
  std::replace(id.begin(), id.end(), '-', '_');
  return id;
});

TEST(Laws, EveryOneIsInTheTable) {
  for (const Requirement& requirement : requirements()) {
    if (requirement.id.rfind("LAW-", 0) != 0) continue;
    const bool listed = std::any_of(std::begin(kBroken), std::end(kBroken),
                                    [&](const Broken& row) { return row.id == requirement.id; });
    EXPECT_TRUE(listed) << requirement.id;
  }
}

}  // namespace
}  // namespace attest
