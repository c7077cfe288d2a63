// SPDX-License-Identifier: Apache-2.0
// What a drawn problem has beyond sizes and data: masks, windows, lengths, position encodings,
// layouts.
#pragma once

#include "attest/declaration.hpp"
#include "attest/problem.hpp"
#include "harness/dice.hpp"

namespace attest {

/// Each declared feature with its own small probability. The result may need make_legal().
void draw_features(Dice& dice, const Declaration& declaration, AttentionProblem& problem);

/// One feature for certain, with drawn values, and what it needs; what excludes it goes. The result
/// may need make_legal().
void turn_on(Dice& dice, const Declaration& declaration, Feature feature,
             AttentionProblem& problem);

/// A head dim: mostly small, also the edges of tiles.
std::int64_t draw_channels(Dice& dice);
/// Any member of the set up to 256, so that sparse sets ({64, 128}) are seen whole;
/// draw_channels() where every number is one.
std::int64_t draw_member(Dice& dice, const DimSet& set);

}  // namespace attest
