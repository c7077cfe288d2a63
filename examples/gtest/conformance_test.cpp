// SPDX-License-Identifier: Apache-2.0
// The whole suite as parameterised tests of one's own test binary: one test per requirement and
// dtype. The kernel is linked in (examples/cpp/plugin.cpp).
#include <attest/gtest.hpp>

ATTEST_CONFORMANCE(ExampleKernel, attest_plugin_entry(ATTEST_ABI_VERSION));
