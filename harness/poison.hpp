// SPDX-License-Identifier: Apache-2.0
// What lies in bytes that must not matter, and in outputs before they are written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/layout.hpp"

namespace attest {

/// The bits of the poisoned element at this distance from the tensor's first one. Floating types:
/// a quiet NaN whose payload no arithmetic makes, or large finite numbers of alternating sign.
/// Integers: out of the range of any length, offset or boolean.
std::uint64_t poison_bits(Element element, Poison poison, std::int64_t distance);

/// Fills [begin, end); `first` is where the tensor's first element lies and may be anywhere.
void fill_poison(std::byte* begin, std::byte* end, const std::byte* first, Element element,
                 Poison poison);

}  // namespace attest
