// SPDX-License-Identifier: Apache-2.0
#include "harness/suite.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "harness/fake_run_test.hpp"

namespace attest {
namespace {

const std::vector<const Requirement*> kTwo{&kHonest, &kLongHeads};

TEST(Suite, NamesAreFoundAndOthersAreNot) {
  for (const char* name : {"smoke", "quick", "full"}) {
    ASSERT_NE(find_suite(name), nullptr);
    EXPECT_EQ(find_suite(name)->name, name);
  }
  EXPECT_EQ(find_suite("quic"), nullptr);
  EXPECT_EQ(find_suite(""), nullptr);
}

TEST(Plan, EveryPrefixTestsRequirementsInProportionToTheirShare) {
  // kLongHeads has one problem of its own for two shared ones.
  const std::vector<WorkUnit> units = plan_units(kTwo, 1000, false, {});
  ASSERT_EQ(units.size(), 1500u);
  std::int64_t shared = 0, own = 0;
  for (const WorkUnit& unit : units) {
    ++(unit.stream == WorkUnit::shared_stream(Operation::forward) ? shared : own);
    EXPECT_LE(std::abs(shared - 2 * own), 2);
  }
  EXPECT_EQ(shared, 1000);
}

TEST(Plan, IndicesOfAStreamAreAllThereOnce) {
  for (const int share : {1, 250, 999, 1000, 2500}) {
    Requirement own = kLongHeads;
    own.share = share;
    std::vector<std::int64_t> indices;
    for (const WorkUnit& unit : plan_units({&own}, 2000, false, {})) indices.push_back(unit.index);
    ASSERT_EQ(indices.size(), static_cast<std::size_t>(2 * share));
    for (std::size_t i = 0; i < indices.size(); ++i)
      EXPECT_EQ(indices[i], static_cast<std::int64_t>(i));
  }
}

TEST(Plan, ShardsPartTheListAndKeepItsOrder) {
  const std::vector<WorkUnit> whole = plan_units(kTwo, 101, false, {});
  std::map<std::pair<int, std::int64_t>, int> seen;
  for (int i = 1; i <= 4; ++i) {
    auto position = whole.begin();
    for (const WorkUnit& unit : plan_units(kTwo, 101, false, {i, 4})) {
      ++seen[{unit.stream, unit.index}];
      position = std::find(position, whole.end(), unit);
      ASSERT_NE(position, whole.end());
    }
  }
  EXPECT_EQ(seen.size(), whole.size());
  for (const auto& [unit, times] : seen) EXPECT_EQ(times, 1);
}

TEST(Plan, GivenCasesAreSeenByEveryRequirement) {
  EXPECT_EQ(plan_units(kTwo, 7, true, {}).size(), 14u);
}

TEST(ProblemOf, IsAFunctionOfTheUnitAlone) {
  WorkList work;
  work.declaration = *parse_declaration(kFakeDeclaration);
  work.requirements = kTwo;
  work.seed = 5;
  const auto shared = problem_of(work, {WorkUnit::shared_stream(Operation::forward), 40});
  EXPECT_EQ(problem_of(work, {WorkUnit::shared_stream(Operation::forward), 40}), shared);
  EXPECT_NE(problem_of(work, {WorkUnit::shared_stream(Operation::forward), 41}), shared);
  // The stream of a requirement is its id, not its place among those that were selected.
  const auto own = problem_of(work, {1, 40});
  work.requirements = {&kLongHeads};
  EXPECT_EQ(problem_of(work, {0, 40}), own);
  work.seed = 6;
  EXPECT_NE(problem_of(work, {WorkUnit::shared_stream(Operation::forward), 40}), shared);
}

}  // namespace
}  // namespace attest
