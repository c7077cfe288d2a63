// SPDX-License-Identifier: Apache-2.0
#include "harness/suite.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "attest/names.hpp"
#include "harness/expectations.hpp"
#include "harness/generate.hpp"

namespace attest {

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      {.name = "smoke",
       .purpose = "a first answer",
       .problems = 1000,
       .audit_pairs = 200,
       .requirements = {}},
      {.name = "quick",
       .purpose = "for every change",
       .problems =
           6000,  // 20 s of CPU for naive; leaves half of the minute to a kernel ten times slower
       .audit_pairs = 200,
       .requirements = {}},
      {.name = "full",
       .purpose = "for a release",
       .problems = 250000,
       .audit_pairs = 200,
       .requirements = {}},
      {.name = "quick@1",
       .purpose = "quick as of 0.1, frozen",
       .problems = 6000,
       .audit_pairs = 200,
       .requirements = {"CONTRACT-REFUSES",  "CONTRACT-SERVES",    "DET-RUN",
                        "INV-ALIGNMENT",     "INV-BATCH",          "INV-ORDER",
                        "INV-THREADS",       "LAW-ALIBI-BIAS",     "LAW-ALIBI-CHANNEL",
                        "LAW-BATCH-ORDER",   "LAW-BLOCKS-MASK",    "LAW-BROADCAST",
                        "LAW-CHANNEL-ORDER", "LAW-DROPOUT",        "LAW-DUPLICATE-KEYS",
                        "LAW-GQA-REPEAT",    "LAW-HEAD-ORDER",     "LAW-KEY-ORDER",
                        "LAW-LAYOUT",        "LAW-MASK-BIAS",      "LAW-PACKED",
                        "LAW-PADDING",       "LAW-POSITION-SHIFT", "LAW-QUERY-CHUNKS",
                        "LAW-ROPE-DIAGONAL", "LAW-ROPE-LINEAR",    "LAW-ROPE-NTK",
                        "LAW-ROPE-PAIRING",  "LAW-RULE-MASK",      "LAW-SCALE",
                        "LAW-SHIFT",         "LAW-SINK-KEY",       "LAW-SPLIT-MERGE",
                        "LAW-V-LINEAR",      "LAW-WINDOW",         "LIMIT-STRIDE",
                        "LONG-NEEDLE",       "MASK-NANSAFE",       "MASK-NOLEAK",
                        "MASK-VISIBLE",      "MEM-BOUNDS",         "MEM-INPUTS",
                        "MEM-NEVER-READ",    "MEM-WRITTEN",        "NAN-VISIBLE",
                        "ORACLE-LSE",        "ORACLE-O",           "ORACLE-UNBIASED",
                        "ROWS-EMPTY",        "SIZE-GRID",          "SOFTMAX-ROWSUM"}},
  };
  return all;
}

const Suite* find_suite(std::string_view name) {
  for (const Suite& suite : suites())
    if (suite.name == name) return &suite;
  return nullptr;
}

std::vector<const Requirement*> select_requirements(std::vector<const Requirement*> known,
                                                    const Suite* suite, const std::string& filter) {
  if (known.empty())
    for (const Requirement& requirement : requirements()) known.push_back(&requirement);
  std::erase_if(known, [&](const Requirement* requirement) {
    if (!filter.empty() && !glob_match(filter, requirement->id)) return true;
    return suite && !suite->requirements.empty() &&
           std::find(suite->requirements.begin(), suite->requirements.end(), requirement->id) ==
               suite->requirements.end();
  });
  return known;
}

std::vector<const Requirement*> not_skipped(const std::vector<const Requirement*>& selected,
                                            const Declaration& declaration) {
  std::vector<const Requirement*> left = selected;
  std::erase_if(left, [&](const Requirement* requirement) {
    return skipped(*requirement, declaration).has_value();
  });
  return left;
}

std::vector<WorkUnit> plan_units(const std::vector<const Requirement*>& requirements,
                                 std::int64_t problems, bool given, const Shard& shard) {
  std::vector<WorkUnit> units;
  std::array<bool, kNamesOf<Operation>.size()> shared{};
  for (const Requirement* requirement : requirements)
    if (!requirement->has_own_problems())
      shared[given ? 0 : static_cast<std::size_t>(requirement->operation)] = true;
  // A backward call costs as much as three forward ones, and needs one before it. Decoding is the
  // whole of some kernels, and so is a component.
  const auto period = [&shared](Operation operation) -> std::int64_t {
    if (operation == Operation::backward) return 5;
    const bool alone = !shared[0] && !shared[static_cast<std::size_t>(Operation::decode)];
    if (operation == Operation::rope) return alone ? 1 : 4;
    return operation == Operation::decode && shared[0] ? 3 : 1;
  };
  const auto add = [&](int stream, std::int64_t index) {
    if (index % shard.count == shard.index - 1) units.push_back({stream, index});
  };
  for (std::int64_t i = 0; i < problems; ++i) {
    for (std::size_t n = 0; n < shared.size(); ++n) {
      const auto operation = static_cast<Operation>(n);
      const std::int64_t every = period(operation);
      if (shared[n] && i % every == 0) add(WorkUnit::shared_stream(operation), i / every);
    }
    for (std::size_t r = 0; r < requirements.size(); ++r) {
      if (!requirements[r]->has_own_problems()) continue;
      const std::int64_t share = given ? 1000 : requirements[r]->share;
      for (std::int64_t j = i * share / 1000; j < (i + 1) * share / 1000; ++j)
        add(static_cast<int>(r), j);
    }
  }
  return units;
}

AttentionProblem drawn_for(const Requirement& owner, const Declaration& declaration,
                           std::uint64_t seed, std::uint64_t index) {
  AttentionProblem problem =
      owner.draw ? owner.draw(declaration, seed, index) : draw(declaration, seed, owner.id, index);
  // What is drawn for a requirement of forward calls serves its twins too. Where the kernel has
  // none, it is of the twin's operation already, but in the plainest of its forms.
  const bool of_forward = !owner.draw || owner.is_twin;
  if (owner.operation == Operation::decode && of_forward)
    return to_decode(std::move(problem), declaration);
  if (owner.operation == Operation::rope && of_forward)
    return to_rope(std::move(problem), declaration);
  return problem;
}

AttentionProblem drawn_shared(Operation operation, const Declaration& declaration,
                              std::uint64_t seed, std::uint64_t index) {
  switch (operation) {
    case Operation::forward: break;
    case Operation::backward:
      return to_backward(draw(declaration, seed, "backward", index), declaration);
    case Operation::decode: return to_decode(draw(declaration, seed, "decode", index), declaration);
    case Operation::rope: return to_rope(draw(declaration, seed, "rope", index), declaration);
  }
  return draw(declaration, seed, "shared", index);
}

std::optional<AttentionProblem> problem_of(const WorkList& work, const WorkUnit& unit) {
  const auto index = static_cast<std::size_t>(unit.index);
  const bool drawn = work.given.empty();
  if (unit.is_shared())
    return drawn ? drawn_shared(unit.operation(), work.declaration, work.seed, index)
                 : work.given[index];
  const Requirement& owner = *work.requirements[static_cast<std::size_t>(unit.stream)];
  return owner.usable(
      drawn ? drawn_for(owner, work.declaration, work.seed, index) : work.given[index],
      work.declaration);
}

bool is_wanted(const WorkList& work, const WorkUnit& unit, const Requirement& requirement) {
  return work.given_requirements.empty() ||
         work.given_requirements[static_cast<std::size_t>(unit.index)] == requirement.id;
}

std::vector<std::size_t> requirements_of(const WorkList& work, const WorkUnit& unit,
                                         const AttentionProblem& problem) {
  if (!unit.is_shared()) return {static_cast<std::size_t>(unit.stream)};
  std::vector<std::size_t> places;
  for (std::size_t r = 0; r < work.requirements.size(); ++r) {
    const Requirement& requirement = *work.requirements[r];
    if (requirement.has_own_problems() || requirement.operation != problem.operation ||
        !is_wanted(work, unit, requirement))
      continue;
    if (requirement.applies && !requirement.applies(problem, work.declaration)) continue;
    places.push_back(r);
  }
  return places;
}

std::uint64_t feature_bits(const AttentionProblem& problem) {
  std::uint64_t bits = 0;
  for (const Feature feature : features_of(problem)) bits |= feature_bit(feature);
  return bits;
}

}  // namespace attest
