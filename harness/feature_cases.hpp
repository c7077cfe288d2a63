// SPDX-License-Identifier: Apache-2.0
// Problems that use one given feature.
#pragma once

#include "attest/declaration.hpp"

namespace attest {

/// Turns the feature on, with what it needs (global_tokens needs a window). The result may need
/// make_legal() to be consistent.
void add_feature(AttentionProblem& problem, Feature feature);

/// A declaration that covers everything.
const Declaration& everything();

}  // namespace attest
