// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "attest/declaration.hpp"

namespace attest {

/// What both a kernel and a scope declare, in the kernel's own encodings, conventions and
/// precision. nullopt where nothing is left that can be declared.
std::optional<Declaration> narrowed(const Declaration& kernel, const Declaration& scope);

}  // namespace attest
