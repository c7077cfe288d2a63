// SPDX-License-Identifier: Apache-2.0
// The kernels that Attest measures itself with.
#pragma once

#include <vector>

#include "harness/selftest.hpp"
#include "tools/arguments.hpp"

namespace attest {

/// The library named by the positional LIBRARY, or Attest's own beside the folder of the built-in
/// modules.
Catalogue read_catalogue(const Arguments& arguments);

/// The built-in implementations: all of them honest.
std::vector<HonestKernel> built_in_kernels();

}  // namespace attest
