// SPDX-License-Identifier: Apache-2.0
#include "harness/suite.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "harness/fake_run_test.hpp"
#include "harness/generate.hpp"

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

Requirement shared_of(Operation operation, const char* id) {
  Requirement requirement = kHonest;
  requirement.id = id;
  requirement.operation = operation;
  return requirement;
}

/// Shared problems of each operation.
std::array<std::int64_t, 3> shared_problems(const std::vector<WorkUnit>& units) {
  std::array<std::int64_t, 3> count{};
  for (const WorkUnit& unit : units) {
    EXPECT_TRUE(unit.is_shared());
    std::int64_t& next = count.at(static_cast<std::size_t>(unit.operation()));
    EXPECT_EQ(unit.index, next++);
    EXPECT_EQ(WorkUnit::shared_stream(unit.operation()), unit.stream);
  }
  return count;
}

TEST(Plan, EachOperationHasSharedProblemsOfItsOwn) {
  const Requirement forward = shared_of(Operation::forward, "F");
  const Requirement backward = shared_of(Operation::backward, "G");
  const Requirement decode = shared_of(Operation::decode, "H");
  using Counts = std::array<std::int64_t, 3>;
  const auto counts = [](const std::vector<const Requirement*>& requirements) {
    return shared_problems(plan_units(requirements, 150, false, {}));
  };
  EXPECT_EQ(counts({&forward}), (Counts{150, 0, 0}));
  EXPECT_EQ(counts({&forward, &backward}), (Counts{150, 30, 0}));
  EXPECT_EQ(counts({&forward, &decode}), (Counts{150, 0, 50}));
  EXPECT_EQ(counts({&forward, &backward, &decode}), (Counts{150, 30, 50}));
  // A kernel that does nothing but decode is tested as much as one that does not.
  EXPECT_EQ(counts({&decode}), (Counts{0, 0, 150}));
  EXPECT_EQ(counts({&decode, &decode}), (Counts{0, 0, 150}));
  // Problems that are given are one stream, whatever their operations.
  EXPECT_EQ(shared_problems(plan_units({&forward, &backward, &decode}, 7, true, {})),
            (Counts{7, 0, 0}));
}

constexpr const char* kDecoder =
    "dtype=f32,bf16 features=all backward=all cache=contiguous,ring,paged splits deterministic";

TEST(ProblemOf, SharedProblemsAreOfTheOperationOfTheirStream) {
  const Requirement forward = shared_of(Operation::forward, "F");
  const Requirement backward = shared_of(Operation::backward, "G");
  const Requirement decode = shared_of(Operation::decode, "H");
  WorkList work;
  work.declaration = *parse_declaration(kDecoder);
  work.requirements = {&forward, &backward, &decode};
  for (const Operation operation : {Operation::forward, Operation::backward, Operation::decode})
    for (std::int64_t index = 0; index < 100; ++index) {
      const WorkUnit unit{WorkUnit::shared_stream(operation), index};
      const auto problem = problem_of(work, unit);
      ASSERT_TRUE(problem);
      ASSERT_EQ(problem->operation, operation) << print_case(*problem);
      ASSERT_EQ(not_declared(work.declaration, *problem), std::nullopt) << print_case(*problem);
      ASSERT_EQ(requirements_of(work, unit, *problem),
                std::vector<std::size_t>{static_cast<std::size_t>(operation)});
      ASSERT_EQ(problem_of(work, unit), problem);
    }
}

TEST(ProblemOf, ARequirementOfDecodeCallsDecodesWhatItsTwinDraws) {
  Requirement drawn = shared_of(Operation::decode, "D");
  drawn.draw = [](const Declaration& declaration, std::uint64_t seed, std::uint64_t index) {
    return draw(declaration, seed, "twin", index);
  };
  Requirement own = drawn;  // draws decode calls itself
  drawn.is_twin = true;
  own.draw = [](const Declaration& declaration, std::uint64_t seed, std::uint64_t index) {
    AttentionProblem problem = to_decode(draw(declaration, seed, "twin", index), declaration);
    problem.seed = 77;
    return problem;
  };
  Requirement adapted = shared_of(Operation::decode, "E");
  adapted.adapt = [](AttentionProblem problem,
                     const Declaration&) -> std::optional<AttentionProblem> {
    problem.seed = 5;
    return problem;
  };
  const Declaration declaration = *parse_declaration(kDecoder);
  for (std::uint64_t index = 0; index < 50; ++index) {
    for (const Requirement* requirement : {&drawn, &own}) {
      const AttentionProblem problem = drawn_for(*requirement, declaration, 1, index);
      ASSERT_EQ(problem.operation, Operation::decode);
      ASSERT_EQ(not_declared(declaration, problem), std::nullopt) << print_case(problem);
    }
    EXPECT_EQ(drawn_for(own, declaration, 1, index).seed, 77u) << "as it was drawn";
    WorkList work;
    work.declaration = declaration;
    work.requirements = {&adapted};
    const auto problem = problem_of(work, {0, static_cast<std::int64_t>(index)});
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->operation, Operation::decode);
    EXPECT_EQ(problem->seed, 5u);
  }
}

TEST(ProblemOf, GivenCasesAreForRequirementsOfTheirOperation) {
  Requirement own = kLongHeads;
  const Requirement decode = shared_of(Operation::decode, "H");
  WorkList work;
  work.declaration = *parse_declaration(kDecoder);
  work.requirements = {&kHonest, &decode, &own};
  for (const char* line : {"attention.decode lk=3 d=2", "attention.forward lk=3 d=2"})
    work.given.push_back(*parse_case(line));
  const WorkUnit first{WorkUnit::shared_stream(Operation::forward), 0},
      second{WorkUnit::shared_stream(Operation::forward), 1};
  EXPECT_EQ(problem_of(work, first), work.given[0]);
  EXPECT_EQ(requirements_of(work, first, work.given[0]), std::vector<std::size_t>{1});
  EXPECT_EQ(requirements_of(work, second, work.given[1]), std::vector<std::size_t>{0});
  EXPECT_EQ(problem_of(work, {2, 0}), std::nullopt) << "of forward calls";
  own.operation = Operation::decode;
  EXPECT_TRUE(problem_of(work, {2, 0}));
  EXPECT_EQ(problem_of(work, {2, 1}), std::nullopt) << "of decode calls";
}

TEST(Skipped, WhatTheKernelDoesNotDo) {
  const auto why = [](Operation operation, const char* declaration) {
    return skipped(shared_of(operation, "X"), *parse_declaration(declaration)).value_or("");
  };
  EXPECT_EQ(why(Operation::forward, "dtype=f32"), "");
  EXPECT_EQ(why(Operation::forward, "dtype=f32 cache=ring forward=none"), "not declared: forward");
  EXPECT_EQ(why(Operation::backward, "dtype=f32 cache=ring"), "not declared: backward");
  EXPECT_EQ(why(Operation::backward, "dtype=f32 backward"), "");
  EXPECT_EQ(why(Operation::decode, "dtype=f32 backward"), "not declared: decode");
  EXPECT_EQ(why(Operation::decode, "dtype=f32 cache=ring forward=none"), "");
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
