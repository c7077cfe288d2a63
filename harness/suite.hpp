// SPDX-License-Identifier: Apache-2.0
// Suites, and the ordered list of work that a suite is for one kernel.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "attest/problem.hpp"
#include "harness/requirement.hpp"

namespace attest {

/// How much is tested. A name with '@' is frozen: once released, its list never changes.
struct Suite {
  std::string_view name;
  std::string_view purpose;
  std::int64_t problems = 0;     ///< shared problems; requirements with their own get `share`/1000
  std::int64_t audit_pairs = 0;  ///< mean (query, key) pairs per shared problem for the audit
  /// The ids that a frozen suite runs; empty: all that exist.
  std::vector<std::string_view> requirements;
};

const std::vector<Suite>& suites();
/// nullptr where there is none of that name.
const Suite* find_suite(std::string_view name);

struct Shard {
  int index = 1, count = 1;
};

/// One step of a run: the problem `index` of a stream, and what is checked on it.
struct WorkUnit {
  /// The shared problems of an operation, or the place of a requirement with problems of its own.
  int stream = shared_stream(Operation::forward);
  std::int64_t index = 0;
  static constexpr int shared_stream(Operation operation) {
    return -1 - static_cast<int>(operation);
  }
  bool is_shared() const { return stream < 0; }
  Operation operation() const { return static_cast<Operation>(-1 - stream); }  ///< where shared
  bool operator==(const WorkUnit&) const = default;
};

/// Everything that decides which cases a run has. Two equal work lists are the same cases.
struct WorkList {
  Declaration declaration;
  std::vector<const Requirement*> requirements;  ///< selected, not skipped; by id
  std::uint64_t seed = 1;
  std::vector<AttentionProblem> given;  ///< the problems of a case file, instead of drawn ones
  /// For each of `given` the one requirement that is checked on it; empty: all that speak of it.
  std::vector<std::string> given_requirements;
  std::int64_t audit_pairs = 0;
  /// Problems of more triples (harness/pace.hpp) are not judged: the kernel is too slow for them.
  double most_triples = std::numeric_limits<double>::infinity();
  std::vector<WorkUnit> units;
};

/// Of the `known` requirements (none: all that are registered) those that a suite runs (nullptr:
/// all) and whose id matches a glob ("": all).
std::vector<const Requirement*> select_requirements(std::vector<const Requirement*> known,
                                                    const Suite* suite, const std::string& filter);
/// Those that have something to check on a kernel with this declaration.
std::vector<const Requirement*> not_skipped(const std::vector<const Requirement*>& selected,
                                            const Declaration& declaration);

/// Interleaved by index, so that cutting the list at any point leaves every requirement tested
/// alike. A shard has the units with index % count == shard.index - 1.
std::vector<WorkUnit> plan_units(const std::vector<const Requirement*>& requirements,
                                 std::int64_t problems, bool given, const Shard& shard);

/// The problem of an index in the stream of a requirement.
AttentionProblem drawn_for(const Requirement& owner, const Declaration& declaration,
                           std::uint64_t seed, std::uint64_t index);
/// The same of the shared problems of an operation.
AttentionProblem drawn_shared(Operation operation, const Declaration& declaration,
                              std::uint64_t seed, std::uint64_t index);

/// The problem of a unit; nullopt where the requirement of its stream passes it by.
std::optional<AttentionProblem> problem_of(const WorkList& work, const WorkUnit& unit);

/// Whether a case file asks for this requirement on the problem of the unit.
bool is_wanted(const WorkList& work, const WorkUnit& unit, const Requirement& requirement);

/// The requirements (places in WorkList::requirements) that speak of the problem of a unit.
std::vector<std::size_t> requirements_of(const WorkList& work, const WorkUnit& unit,
                                         const AttentionProblem& problem);

/// The features of a problem as bits, by enum value.
std::uint64_t feature_bits(const AttentionProblem& problem);
constexpr std::uint64_t feature_bit(Feature feature) {
  return std::uint64_t{1} << static_cast<unsigned>(feature);
}
static_assert(kNumFeatures <= 64);

}  // namespace attest
