// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>

extern "C" {
extern const std::size_t layout_own[];
extern const std::size_t layout_dlpack[];
}

namespace {

constexpr int kEntries = 26;  // of layout.c

TEST(PluginHeader, ItsOwnDlpackHasTheLayoutOfTheRealOne) {
  for (int i = 0; i < kEntries; ++i) EXPECT_EQ(layout_own[i], layout_dlpack[i]) << "entry " << i;
  EXPECT_EQ(layout_own[kEntries - 1], 0u) << "kEntries is out of date";
}

TEST(PluginHeader, StructSizesOfAbiVersion1OnA64BitMachine) {
  // Pointers and integers of 8 bytes: what plug-ins compiled today write into struct_size.
  if (sizeof(void*) != 8) GTEST_SKIP() << "not a 64-bit machine";
  EXPECT_EQ(layout_own[7], 48u) << "DLTensor";
  EXPECT_EQ(layout_own[22], 2 * 4u + 5 * 8) << "attest_context";
  // The eight of a backward call came after the others, and the seven of a decode call after them:
  // what was compiled before reads them as beyond its struct.
  EXPECT_EQ(layout_own[23], 2 * 4u + 21 * 8 + 6 * 8 + 7 * 8 + 6 * 4 + 8 * 8 + 5 * 8 + 2 * 4)
      << "attest_attention";
  EXPECT_EQ(layout_own[24], 2 * 4u + 3 * 8 + 2 * 4 + 8 * 8 + 8) << "attest_plugin";
}

}  // namespace
