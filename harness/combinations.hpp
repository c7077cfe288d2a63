// SPDX-License-Identifier: Apache-2.0
// Which things of a problem meet: making every pair meet, and counting which did.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/record.hpp"
#include "harness/dice.hpp"

namespace attest {

/// Features, and perhaps a dtype, that a problem is to have together.
struct Combination {
  std::vector<Feature> features;
  std::optional<DType> dtype;
};

/// By turns a pair of all that is declared and a triple of the core features (with a dtype in place
/// of one); each list in an order that meets everything early, and from the front again after its
/// end. Combinations that no problem can have are among them.
Combination combination_at(const Declaration& declaration, std::uint64_t number);

/// The problem with all of the combination, legal and declared, keeping what else it has where that
/// is possible; nullopt where no way to turn the combination on keeps it.
std::optional<AttentionProblem> with_combination(Dice& dice, const Declaration& declaration,
                                                 const AttentionProblem& problem,
                                                 const Combination& wanted);

/// What one problem counts for: its features as bits by enum value, then its dtype.
using FeatureSet = std::uint64_t;
FeatureSet feature_set(std::uint64_t features, DType dtype);

/// Over all problems that were really tested. Whether a combination is possible at all is found by
/// building a problem with it.
PairCoverage pair_coverage(const Declaration& declaration, const std::vector<FeatureSet>& tested);

}  // namespace attest
