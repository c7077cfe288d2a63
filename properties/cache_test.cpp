// SPDX-License-Identifier: Apache-2.0
// Every requirement of decode calls holds for an honest kernel, and is broken by one with a mistake
// of its kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "attest/case_line.hpp"
#include "harness/subject.hpp"
#include "harness/suite.hpp"
#include "properties/cache_test_kernel.hpp"
#include "properties/run_requirement_test.hpp"

namespace attest {
namespace {

struct Broken {
  const char* id;
  CacheBreak broken;
  std::uint64_t cases = 150;
};

constexpr Broken kBroken[] = {
    {"CACHE-APPEND", CacheBreak::stored_key_rounded},
    {"CACHE-APPEND", CacheBreak::stored_key_not_rotated},
    {"CACHE-APPEND", CacheBreak::stored_value_is_key_row_before},
    {"CACHE-BATCH", CacheBreak::factor_by_batch},
    {"CACHE-BOUNDS", CacheBreak::write_between_rows},
    {"CACHE-EMPTY-ROWS", CacheBreak::empty_rows_have_lse_zero},
    {"CACHE-FORWARD", CacheBreak::window_one_wider},
    {"CACHE-FORWARD", CacheBreak::causal_without_cache},
    {"CACHE-FULL", CacheBreak::accepts_what_does_not_fit},
    {"CACHE-FULL", CacheBreak::refuses_after_writing},
    {"CACHE-GQA-REPEAT", CacheBreak::kv_head_by_modulo},
    {"CACHE-GRID", CacheBreak::last_key_of_full_page_lost, 300},
    {"CACHE-GRID", CacheBreak::oldest_key_of_full_ring_lost, 300},
    {"CACHE-HEAD-ORDER", CacheBreak::kv_head_by_modulo},
    {"CACHE-KEY-ORDER", CacheBreak::first_key_counts_twice},
    {"CACHE-LENGTHS", CacheBreak::factor_by_longest},
    {"CACHE-LSE", CacheBreak::lse_of_cached_keys_alone},
    {"CACHE-NAN-VISIBLE", CacheBreak::nan_v_is_zero},
    {"CACHE-NANSAFE", CacheBreak::hidden_keys_times_zero},
    {"CACHE-NEEDLE", CacheBreak::lengths_16_bits, 3},
    {"CACHE-NEVER-READ", CacheBreak::row_behind_the_end_added},
    {"CACHE-NOLEAK", CacheBreak::hidden_keys_leak},
    {"CACHE-O", CacheBreak::one_percent_more},
    {"CACHE-O", CacheBreak::causal_without_cache},
    {"CACHE-ORDER", CacheBreak::every_second_call, 40},
    {"CACHE-PAGES", CacheBreak::pages_taken_in_order},
    {"CACHE-ROWSUM", CacheBreak::last_weight_lost},
    {"CACHE-RULE-MASK", CacheBreak::causal_plus_one},
    {"CACHE-RUN", CacheBreak::last_bit_comes_and_goes},
    {"CACHE-SIZES", CacheBreak::channel_64_lost},
    {"CACHE-SPLITS", CacheBreak::parts_added_without_their_maxima},
    {"CACHE-STEPS", CacheBreak::last_row_of_a_chunk_not_stored},
    {"CACHE-THREADS", CacheBreak::drifts_with_threads, 40},
    {"CACHE-UNTOUCHED", CacheBreak::row_behind_the_end_zeroed},
    {"CACHE-UNTOUCHED", CacheBreak::shared_page_written},
    {"CACHE-V-LINEAR", CacheBreak::v_clamped},
    {"CACHE-VISIBLE", CacheBreak::causal_plus_one},
    {"CACHE-WRITTEN", CacheBreak::last_o_unwritten},
};

/// In this process; so no mistake may read outside the tensors.
std::unique_ptr<Subject> open_kernel() {
  static const attest_plugin plugin =
      detail::table<CacheTestKernel>("cache_test", "1.0", CacheTestKernel::kDeclaration);
  OpenError error;
  auto subject = open_in_process(&plugin, error);
  if (!subject) throw std::runtime_error(error.message);
  return subject;
}

RequirementOutcome run(const Requirement& requirement, CacheBreak broken, std::uint64_t cases) {
  EXPECT_EQ(requirement.operation, Operation::decode);
  CacheTestKernel::broken = broken;
  const RequirementOutcome outcome = run_requirement(requirement, *open_kernel(), cases);
  CacheTestKernel::broken = CacheBreak::none;
  return outcome;
}

class CacheRequirement : public testing::TestWithParam<Broken> {};

TEST_P(CacheRequirement, HoldsForAnHonestKernel) {
  const Requirement* requirement = find_requirement(GetParam().id);
  ASSERT_NE(requirement, nullptr);
  const RequirementOutcome outcome = run(*requirement, CacheBreak::none, GetParam().cases);
  EXPECT_EQ(outcome.broken, 0) << outcome.first;
  // One that is never said would hold too.
  EXPECT_GE(outcome.judged, static_cast<int>(std::min<std::uint64_t>(GetParam().cases, 15)));
  if (GetParam().cases >= 40) {
    EXPECT_EQ(outcome.kinds.size(), 3u) << "kinds of caches";
  }
}

TEST_P(CacheRequirement, IsBrokenByItsMistake) {
  const Requirement* requirement = find_requirement(GetParam().id);
  ASSERT_NE(requirement, nullptr);
  const RequirementOutcome outcome = run(*requirement, GetParam().broken, GetParam().cases);
  EXPECT_GE(outcome.broken, 1) << "of " << outcome.judged;
}

INSTANTIATE_TEST_SUITE_P(All, CacheRequirement, testing::ValuesIn(kBroken), [](const auto& row) {
  std::string id = row.param.id;
  std::replace(id.begin(), id.end(), '-', '_');
  return id + "_" + std::to_string(row.index);
});

TEST(CacheRequirements, EveryOneIsInTheTable) {
  for (const Requirement& requirement : requirements()) {
    EXPECT_EQ(requirement.operation == Operation::decode, requirement.id.starts_with("CACHE-"))
        << requirement.id;
    if (requirement.operation != Operation::decode) continue;
    // Of kernels with other declarations, below.
    if (requirement.id == "CACHE-REFUSES" || requirement.id == "CACHE-SERVES") continue;
    const bool listed = std::any_of(std::begin(kBroken), std::end(kBroken),
                                    [&](const Broken& row) { return row.id == requirement.id; });
    EXPECT_TRUE(listed) << requirement.id;
  }
}

/// Declares blocks alone, or pages too; turns pages away, or does not.
template <bool kDeclaresPages, bool kRefusesPages>
struct Narrower : CacheTestKernel {
  void decode(const attest_attention& p, const Context& context) override {
    if (kRefusesPages && p.cache == ATTEST_CACHE_PAGED) throw Unsupported("no pages");
    CacheTestKernel::decode(p, context);
  }
  static std::unique_ptr<Subject> open() {
    static const attest_plugin plugin = detail::table<Narrower>(
        "narrower", "1.0",
        kDeclaresPages ? "dtype=f32 forward=none v_head_dim=any lse cache=contiguous,paged"
                       : "dtype=f32 forward=none v_head_dim=any lse cache=contiguous");
    OpenError error;
    return open_in_process(&plugin, error);
  }
};

/// Verdicts on those cases of the requirement that are about pages.
std::set<Verdict> about_pages(const char* id, const std::unique_ptr<Subject>& subject) {
  const Requirement* requirement = find_requirement(id);
  WorkList work;
  work.declaration = subject->declaration();
  work.requirements = {requirement};
  std::set<Verdict> verdicts;
  for (std::int64_t n = 0; n < 600; ++n) {
    const auto problem = problem_of(work, {0, n});
    if (!problem || problem->operation != Operation::decode || problem->cache != CacheKind::paged)
      continue;
    CaseContext context(*subject);
    verdicts.insert(requirement->check(context, *problem).verdict);
  }
  return verdicts;
}

TEST(CacheRequirements, UndeclaredPagesAreToBeRefused) {
  EXPECT_EQ(about_pages("CACHE-REFUSES", Narrower<false, true>::open()),
            std::set<Verdict>{Verdict::pass});
  CacheTestKernel::broken = CacheBreak::one_percent_more;
  EXPECT_TRUE(about_pages("CACHE-REFUSES", Narrower<false, false>::open()).contains(Verdict::fail));
  CacheTestKernel::broken = CacheBreak::none;
}

TEST(CacheRequirements, DeclaredPagesAreToBeServed) {
  EXPECT_EQ(about_pages("CACHE-SERVES", Narrower<true, false>::open()),
            std::set<Verdict>{Verdict::pass});
  EXPECT_TRUE(about_pages("CACHE-SERVES", Narrower<true, true>::open()).contains(Verdict::fail));
}

TEST(CacheRequirements, TwinsSayWhatTheyAreTwinsOf) {
  const Requirement *forward = find_requirement("ORACLE-O"), *decode = find_requirement("CACHE-O");
  ASSERT_TRUE(forward && decode);
  EXPECT_EQ(forward->operation, Operation::forward);
  EXPECT_EQ(decode->sentence, "of a decode call: " + forward->sentence);
  EXPECT_EQ(decode->check, forward->check);
  EXPECT_TRUE(decode->of_decode.empty());
}

/// Whether or not the kernel has forward calls to draw for.
TEST(CacheRequirements, SeeEveryKindOfCacheThatIsDeclared) {
  for (const char* forward : {"", "forward=none "}) {
    WorkList work;
    work.declaration =
        *parse_declaration(std::string("dtype=f32 features=all lse ") + forward +
                           "cache=contiguous,ring,paged cache_keys=raw,rotated splits");
    for (const Requirement& requirement : requirements()) {
      if (requirement.operation != Operation::decode || skipped(requirement, work.declaration))
        continue;
      work.requirements = {&requirement};
      std::set<CacheKind> kinds;
      for (std::uint64_t n = 0; n < 100; ++n)
        if (const auto problem = problem_of_only(work, n)) kinds.insert(problem->cache);
      EXPECT_EQ(kinds.size(), 3u) << requirement.id << " " << forward;
    }
  }
}

TEST(CacheRequirements, AreSkippedForKernelsThatDoNotDecode) {
  const Declaration forward = *parse_declaration("dtype=f32 features=all");
  const Declaration decode = *parse_declaration("dtype=f32 cache=contiguous forward=none");
  for (const Requirement& requirement : requirements()) {
    const bool of_decode = requirement.operation == Operation::decode;
    if (of_decode) {
      EXPECT_TRUE(skipped(requirement, forward)) << requirement.id;
    }
    if (!of_decode) {
      EXPECT_TRUE(skipped(requirement, decode)) << requirement.id;
    }
  }
  // Nothing to compare with, nothing to choose, nothing promised.
  for (const char* id : {"CACHE-FORWARD", "CACHE-PAGES", "CACHE-SPLITS", "CACHE-RUN"})
    EXPECT_TRUE(skipped(*find_requirement(id), decode)) << id;
  for (const char* id : {"CACHE-O", "CACHE-APPEND", "CACHE-FULL", "CACHE-GRID"})
    EXPECT_FALSE(skipped(*find_requirement(id), decode)) << id;
}

}  // namespace
}  // namespace attest
