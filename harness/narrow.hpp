// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "attest/declaration.hpp"

namespace attest {

/// Takes away what speaks of something that is not declared: a polarity without a mask, say.
void drop_ownerless(Declaration& declaration);

/// Adds a value above all those of a set of single steps.
void append(DimSet& set, std::int64_t value);

/// What both a kernel and a scope declare, in the kernel's own encodings, conventions and
/// precision. nullopt where nothing is left that can be declared.
std::optional<Declaration> narrowed(const Declaration& kernel, const Declaration& scope);

}  // namespace attest
