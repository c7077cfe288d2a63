// SPDX-License-Identifier: Apache-2.0
// The bytes that keys and values take in a cache, counted after a short decode.
#pragma once

#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/subject.hpp"

namespace attest {

/// For 32 query heads that share 32, 8 and 1 key/value heads, as far as the kernel serves them;
/// empty where it serves no decode. `trouble`: why one is missing.
std::vector<CacheMemory> measure_caches(Subject& subject, const CallLimits& limits,
                                        std::string& trouble);

}  // namespace attest
