// SPDX-License-Identifier: Apache-2.0
// Loading a plug-in and calling it, shared by the kernel host and the in-process subject. Without
// the C++ library.
#pragma once

#include "attest/plugin.h"
#include "harness/host/protocol.hpp"

namespace attest {

struct LoadedPlugin {
  attest_plugin plugin;  ///< a copy; what lies beyond its struct_size is 0
  void* state;
};

/// dlopen, entry, version, the kernel called `kernel` ("" = the first), open(). False: reply says
/// why. The library stays loaded until the process ends: threads of its own may still run in it.
bool load_plugin(const char* path, const char* kernel, LoadedPlugin& loaded, LoadReply& reply,
                 Stage& stage);

/// The same from the table that the entry returned.
bool open_plugin(const attest_plugin* first, const char* kernel, LoadedPlugin& loaded,
                 LoadReply& reply, Stage& stage);

/// plan, forward or backward, drop, on tensors in the arena at `base`. Fills the workspace as the
/// call says. Sets reply.needs_workspace and runs nothing where `workspace` is too small for it.
void call_kernel(const LoadedPlugin& loaded, std::byte* base, const SlotRange& workspace,
                 const PlacedCall& call, CallReply& reply, Stage& stage,
                 std::uint64_t& cpu_before_ns);

/// Where a workspace of this size stands in its slot.
std::uint64_t workspace_offset(const SlotRange& slot, std::uint64_t bytes, bool at_end);
/// What is filled with it: up to 4 KiB on each side, in whole patterns of 8 bytes.
struct WorkspaceMargin {
  std::uint64_t begin, end;
};
WorkspaceMargin workspace_margin(const SlotRange& slot, std::uint64_t bytes, std::uint64_t begin);

}  // namespace attest
